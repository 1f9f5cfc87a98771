"""Processes of other hosts, from here, with one command: against real sshds, each a host of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import msgspec
import pytest

from harness.diagnose.living.document import judge_living
from harness.evidence.living.look import Look
from harness.report.schemas import DIRECTORY
from tests.builders.lanes import INTERPRETERS
from tests.builders.playing import play_hosts
from tests.live.far_jobs import READY, SPIN, SYSTEM_PYTHON, harness, judge
from tests.live.processes import DEADLINE_S, bare, until
from tests.live.sshd import CHATTY, USER, Host, Network, network, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
SLEEP = "def serve():\n    ready()\n    time.sleep(200)\nserve()\n"
# Per-token loops, steps of some tenths of a second, a line every five of them: INCIDENTS B in small.
SLOW = """
def encode(row):
    total = 0.0
    for token in row:
        value = (token * 31 + 7) % 1009
        total += value / 1009 if value % 2 else -value / 1009
    return total

def train():
    row = list(range(1009)) * 20
    begin = time.perf_counter()
    encode(row)
    rows = [row] * max(1, round(0.4 / (time.perf_counter() - begin)))
    ready()
    for step in range(1_000_000):
        for row in rows:
            encode(row)
        if step % 5 == 0:
            print("step", step)

print("training on 2 devices")
train()
"""
# Two ranks on each host, forked after the import; rank 2 never comes to the collective.
RANKS = """
import multiprocessing, torch
import torch.distributed as dist

def refill():
    while True:
        pass

def sync_gradients():
    dist.all_reduce(torch.ones(4))

def run(rank, arrival):
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", init_method="tcp://" + sys.argv[1], rank=rank, world_size=4)
    dist.barrier()
    os.write(arrival, b".")
    refill() if rank == 2 else sync_gradients()

torch.set_num_threads(1)
arrived, arrival = os.pipe()
context = multiprocessing.get_context("fork")
ranks = [context.Process(target=run, args=(int(rank), arrival), daemon=True) for rank in sys.argv[2].split(",")]
for rank in ranks:
    rank.start()
ready()
ranks[0].join()
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network() as made:
        made.add("gpu07")
        made.add("gpu08")
        yield made


@pytest.fixture
def gpu07(net: Network) -> Host:
    net.count_connections()
    return net.hosts["gpu07"]


@pytest.fixture
def job(net: Network) -> Iterator[Callable[..., int]]:
    """Starts a program on a host; gives its pid there."""
    started: list[tuple[Host, int]] = []

    def start(host: Host, source: str, *words: str, user: str = USER, python: str = SYSTEM_PYTHON) -> int:
        script = net.folder / f"job{len(started)}.py"
        script.write_text(READY + source)
        script.chmod(0o644)
        started.append((host, host.start_job(python, script, *words, user=user)))
        return started[-1][1]

    yield start
    for host, pid in started:
        host.inside("kill", "-9", str(pid), check=False)


def left_behind(host: Host) -> list[str]:
    """Files and processes of ours over there."""
    files = [
        str(path)
        for where in ("tmp", "dev/shm", "run")
        for path in Path(f"/proc/{host.init}/root", where).glob("harness-*")
    ]
    return files + [line for line in host.list_commands() if "sys.stdin.buffer" in line]


def test_an_empty_log_on_another_host_is_explained_by_one_command(
    net: Network, gpu07: Host, job: Callable[..., int]
) -> None:
    """INCIDENTS B: it looks stuck, is only slow, and its log is empty because stdout is a block-buffered file."""
    pid = job(gpu07, SLOW)
    status, document = judge(net, "attach", f"{USER}@gpu07:{pid}", "--for", "3")
    assert (status, document["verdict"]["kind"], document["target"]["host"]) == (0, "progressing", "gpu07")
    assert document["target"]["pid"] == pid and document["verdict"]["python_frame"]["function"] == "encode"
    assert document["progress"]["unflushed_stdout"].startswith("training on 2 devices\n")
    assert any("block-buffered file" in ground["fact"] for ground in document["verdict"]["grounds"])
    assert net.count_connections() == 1
    until(lambda: not left_behind(gpu07), "nothing is left there")
    case = Path(document["case"])
    assert case.is_relative_to(net.folder) and case.stat().st_mode & 0o777 == 0o700
    look = msgspec.json.decode((case / "look.json").read_bytes(), type=Look)
    assert judge_living(look).verdict.headline == document["verdict"]["headline"]


def test_a_banner_and_a_chatty_profile_do_not_confuse_it(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    pid = job(gpu07, SLEEP, user=CHATTY)
    status, document = judge(net, "attach", f"{CHATTY}@gpu07:{pid}", "--for", "1")
    assert (status, document["verdict"]["kind"]) == (11, "waiting")
    assert document["verdict"]["user_frame"]["function"] == "serve"


def test_tables_of_several_hosts_and_a_dead_one_is_a_row(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    pid = job(gpu07, SPIN, "word-of-remote-ps")
    listed = net.folder / "hosts"
    listed.write_text(f"# ours\n{USER}@gpu07\n\ngpu08  # second\nnobody-is-called-so.invalid\n")
    ended = harness(net, "ps", "--hosts", listed, "--match", "word-of-remote-ps", HX_LOG="")
    header, row, dead, following = ended.stdout.decode().splitlines()
    assert ended.status == 0 and header.split()[:2] == ["HOST", "PID"] and row.split()[:2] == ["gpu07", str(pid)]
    assert dead.startswith("nobody-is-called-so.invalid  ") and "resolve" in dead
    assert following == f"  next: harness attach {USER}@gpu07:{pid}"
    status, table = judge(net, "ps", f"{USER}@gpu07:")
    assert status == 0 and table["host"] == "gpu07" and pid in [row["pid"] for row in table["rows"]]


def test_what_may_not_be_traced_is_said_with_what_to_type(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    pid = job(gpu07, SLEEP, user="root")
    refused = harness(net, "attach", f"{USER}@gpu07:{pid}", "--for", "1")
    sentence = f"harness: Process {pid} belongs to root.\n  next: harness attach --sudo {USER}@gpu07:{pid}\n"
    assert (refused.status, refused.stderr.decode()) == (3, sentence)
    status, document = judge(net, "attach", "--sudo", f"{USER}@gpu07:{pid}", "--for", "1")
    assert (status, document["verdict"]["user_frame"]["function"]) == (11, "serve")
    no_sudo = harness(net, "attach", "--sudo", f"{CHATTY}@gpu07:{pid}", "--for", "1")
    assert no_sudo.status == 3 and "sudo" in no_sudo.stderr.decode()


def test_a_process_that_is_not_there(net: Network, gpu07: Host) -> None:
    gone = harness(net, "attach", f"{USER}@gpu07:4194304", "--for", "1")
    assert (gone.status, gone.stderr.decode()) == (
        3,
        f"harness: There is no process 4194304.\n  next: harness ps {USER}@gpu07:\n",
    )


def test_a_mount_that_forbids_execution_and_a_full_one(net: Network, job: Callable[..., int]) -> None:
    """With --keep py-spy is a file: /tmp is noexec there, so it goes elsewhere; where nothing has room, it is a gap."""
    host = net.add("small")
    pid = job(host, SLEEP, user="root")
    host.inside("mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", "/tmp")
    host.inside("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    for full in ("/root", "/var/tmp"):
        host.inside("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full)
    _, document = judge(net, "attach", "--keep", f"small:{pid}", "--for", "1")
    assert document["verdict"]["user_frame"]["function"] == "serve"
    (kept,) = Path(f"/proc/{host.init}/root/dev/shm").glob("harness-*")
    assert kept.stat().st_mode & 0o777 == 0o700 and (kept / "py-spy").stat().st_mode & 0o777 == 0o700
    assert any(f"/dev/shm/{kept.name} stays on small" in gap["why"] for gap in document["gaps"])
    assert not list(Path(f"/proc/{host.init}/root/tmp").glob("harness-*"))
    shutil.rmtree(kept)
    host.inside("mount", "-o", "remount,size=16k", "/dev/shm")
    _, document = judge(net, "attach", "--keep", f"small:{pid}", "--for", "1")
    (gap,) = [gap for gap in document["gaps"] if gap["what"] == "Python and native stacks"]
    assert "/tmp: Permission denied" in gap["why"] and "/dev/shm: No space left on device" in gap["why"] and gap["fix"]
    _, document = judge(net, "attach", f"small:{pid}", "--for", "1")
    assert document["verdict"]["user_frame"]["function"] == "serve"
    assert not list(Path(f"/proc/{host.init}/root/dev/shm").glob("harness-*"))


def test_a_host_with_neither_python_nor_bash(net: Network, job: Callable[..., int]) -> None:
    host = net.add("bare")
    pid = job(host, SPIN, user=USER)
    asleep = job(host, "ready(); time.sleep(200)\n", user=USER)
    for program in (os.path.realpath(SYSTEM_PYTHON), os.path.realpath("/bin/bash")):
        host.inside("mount", "--bind", "/bin/false", program)
    host.inside("mount", "-t", "tmpfs", "tmpfs", "/root")
    status, document = judge(net, "attach", f"{USER}@bare:{pid}", "--for", "2")
    (gap,) = [gap for gap in document["gaps"] if gap["what"].startswith("stacks")]
    assert "no python3" in gap["why"] and "py-spy dump" in gap["fix"]
    assert status == 11 and document["verdict"]["kind"].startswith("busy")
    status, document = judge(net, "attach", f"{USER}@bare:{asleep}", "--for", "1")
    assert (status, document["verdict"]["kind"]) == (11, "waiting") and "sleep" in json.dumps(document["living"])
    watch = harness(net, "watch", f"{USER}@bare:{pid}")
    assert watch.status == 3 and "bare has no Python 3.9 or newer" in watch.stderr.decode()


def test_without_python_processes_are_still_found_by_their_command_line(net: Network, job: Callable[..., int]) -> None:
    """By its shell, from /proc: two of that name, one below the other; one that is no Python, one of another name."""
    host = net.add("shellonly")
    fork = "if os.fork(): ready()\nwhile True: pass\n"
    pid = job(host, fork, "word-of-shell-match", "two words")
    other = job(host, SLEEP, "another-word")
    host.start_job("sh", "-c", ": > $ZOO_READY; while sleep 1; do :; done", "word-of-shell-match")
    host.inside("mount", "--bind", "/bin/false", os.path.realpath(SYSTEM_PYTHON))
    host.inside("mount", "-t", "tmpfs", "tmpfs", "/root")
    status, table = judge(net, "ps", f"{USER}@shellonly")
    rows = {row["pid"]: row for row in table["rows"]}
    (child,) = set(rows) - {pid, other}
    assert (status, rows[child]["ppid"], rows[pid]["user"], rows[pid]["threads"]) == (0, pid, USER, 1)
    assert (rows[pid]["word"], rows[other]["word"]) == ("busy", "idle")
    assert rows[pid]["argv"][-2:] == ["word-of-shell-match", "two words"] and rows[pid]["rss_bytes"] > 1 << 20
    net.count_connections()
    status, document = judge(net, "attach", f"{USER}@shellonly:", "--match", "word-of-shell-match two", "--for", "1")
    assert (status, document["target"]["pid"]) == (11, pid) and document["verdict"]["kind"].startswith("busy")
    assert any("no python3" in gap["why"] for gap in document["gaps"]) and net.count_connections() == 1
    none = harness(net, "attach", f"{USER}@shellonly:", "--match", "word-of-shell-matches")
    sentence = "harness: No Python process of shellonly has 'word-of-shell-matches' in its command line.\n"
    assert (none.status, none.stderr.decode()) == (3, f"{sentence}  next: harness ps {USER}@shellonly:\n")


def test_a_link_that_is_cut_leaves_what_had_arrived_and_nothing_there(
    net: Network, gpu07: Host, job: Callable[..., int]
) -> None:
    pid = job(gpu07, SPIN)
    line = [sys.executable, "-m", "harness", "attach", "--json", f"{USER}@gpu07:{pid}", "--for", "25"]
    looking = subprocess.Popen(line, env=net.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        dumps: set[str] = set()

        def has_sampled() -> bool:
            dumps.update(_list_dumps(gpu07))
            return len(dumps) > 3  # two to begin with; after each later one what is known is sent

        until(has_sampled, "some samples")
        gpu07.cut()
        answer, words = looking.communicate(timeout=DEADLINE_S)
    finally:
        looking.kill()
        gpu07.mend()
    document = json.loads(answer)
    assert looking.returncode == 11 and document["verdict"]["kind"].startswith("busy"), words
    (gap,) = [gap for gap in document["gaps"] if gap["what"] == "the rest of the look"]
    assert "this is what had arrived" in gap["why"]
    until(lambda: not left_behind(gpu07), "the agent has noticed the silence")


def _list_dumps(host: Host) -> Iterator[str]:
    """Of py-spy, on that host."""
    there = Path(f"/proc/{host.init}/ns/pid").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                b"dump\0--json\0--locals" in (folder / "cmdline").read_bytes()
                and (folder / "ns/pid").readlink() == there
            ):
                yield folder.name


@pytest.mark.parametrize("way", ["nsenter", "sudo", "unshare"])
def test_any_command_that_runs_another_leads_there(
    net: Network, gpu07: Host, job: Callable[..., int], way: str, tmp_path: Path
) -> None:
    prefix = {
        "nsenter": f"nsenter -t {gpu07.init} -a",
        "sudo": f"nsenter -t {gpu07.init} -a sudo -n -u {USER}",
        "unshare": f"nsenter -t {gpu07.init} -a unshare --uts",
    }[way]
    pid = job(gpu07, SPIN)
    status, document = judge(net, "attach", "--via", prefix, pid, "--for", "1")
    assert (status, document["verdict"]["user_frame"]["function"], document["target"]["host"]) == (11, "spin", prefix)
    assert document["verdict"]["next"].startswith(f"harness attach --via '{prefix}' {pid} ")
    assert net.count_connections() == 0


def test_a_prefix_that_leads_back_does_not_find_ourselves(net: Network, gpu07: Host, tmp_path: Path) -> None:
    """The text of --match stands in our own command line, too."""
    none = harness(net, "attach", "--via", "env", "--match", "word-of-our-own-line", "--for", "1")
    assert none.status == 3 and "has 'word-of-our-own-line' in its command line" in none.stderr.decode()
    table = json.loads(harness(net, "ps", "--via", "env", "--match", "pytest", "--json").stdout)
    assert os.getpid() in [row["pid"] for row in table["rows"]]


def test_four_ranks_on_two_hosts_and_the_one_that_did_not_arrive(
    net: Network, gpu07: Host, job: Callable[..., int]
) -> None:
    where = f"{gpu07.address}:29511"
    variables = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    script = net.folder / "ranks.py"
    script.write_text(READY + RANKS)
    pids = [
        (host, host.start_job(sys.executable, script, where, ranks, **variables))
        for host, ranks in ((gpu07, "0,1"), (net.hosts["gpu08"], "2,3"))
    ]
    try:
        until(lambda: _spins(net.hosts["gpu08"]), "rank 2 spins")
        status, group = judge(net, "attach", "root@gpu07:", "root@gpu08:", "--match", "ranks.py", "--for", "2")
        text = harness(net, "attach", "root@gpu07:", "root@gpu08:", "--match", "ranks.py", "--for", "1").stdout.decode()
    finally:
        for host, pid in pids:
            host.inside("sh", "-c", f"kill -9 $(cat /proc/{pid}/task/{pid}/children) {pid}", check=False)
    assert status == 10
    assert (group["outlier"]["who"], group["outlier"]["host"]) == ("rank 2 on gpu08", "gpu08")
    assert group["outlier"]["place"].startswith("refill (ranks.py:") and group["outlier"]["others"] == 3
    looks = [msgspec.json.decode(file.read_bytes(), type=Look) for file in sorted(Path(group["case"]).glob("look-*"))]
    tools = {run.tool: run.error for look in looks for process in look.processes for run in process.tools}
    # A thread in a system call that a stop would end is left alone; of all others the walk is whole.
    walk = tools["own walk"]
    left_alone = walk is not None and walk.endswith("a stop would have changed what its system calls return")
    assert walk is None or left_alone, "the pystack of the job's own environment tells where calls into Python begin"
    assert "gpu07[rank 0-1" in text and "gpu08[rank 2" in text
    headline = " ".join(text.split())
    assert "3 ranks wait in" in headline and "rank 2 on gpu08 is in refill (ranks.py:" in headline


def _spins(host: Host) -> bool:
    """One of its processes has used CPU since the ranks met: only the odd one does not sleep."""
    states = host.inside("sh", "-c", "cat /proc/[0-9]*/stat", check=False).stdout.splitlines()
    rows = [line.rpartition(")")[2].split() for line in states if "python" in line]
    return any(row[0] == "R" and int(row[11]) > 100 for row in rows)


def test_a_job_elsewhere_is_watched_to_its_end(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    gate = net.folder / "gate"
    os.mkfifo(gate)
    pid = job(gpu07, f"ready()\nopen({str(gate)!r}).read()\nsys.exit(7)\n", user="root")
    line = [sys.executable, "-m", "harness", "watch", "--json-lines", f"gpu07:{pid}", "--stall-after", "1"]
    with subprocess.Popen(line, env=net.environment, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        events = []
        for text in watch.stdout:
            events.append(json.loads(text))
            jsonschema.validate(events[-1], json.loads((DIRECTORY / "watch-1.json").read_text()))
            if events[-1]["event"] == "stall":
                gate.open("w").close()
    assert [event["event"] for event in events] == ["watching", "stall", "ended"]
    assert {event["host"] for event in events} == {"gpu07"} and events[1]["verdict"]["verdict"]["kind"] == "waiting"
    assert (events[2]["exit_code"], watch.returncode) == (7, 10)
    assert net.count_connections() == 1


def test_a_look_from_elsewhere_wakes_nobody(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    """How often each thread left the CPU, and what it stands in: the same before and after."""
    waits = "import queue, threading\nthreading.Thread(target=queue.Queue().get).start()\n"
    pid = job(gpu07, f"{waits}ready()\nos.read(os.pipe()[0], 1)\n")

    def count() -> str:
        line = f"grep -H ctxt_switches /proc/{pid}/task/*/status; grep -H . /proc/{pid}/task/*/syscall /proc/{pid}/io"
        return gpu07.inside("sh", "-c", line).stdout

    until(lambda: "running" not in (before := count()) and before == count(), "it stands")
    before = count()
    assert before.count("voluntary_ctxt_switches") == 4
    for command in (("attach", f"{USER}@gpu07:{pid}", "--for", "2"), ("openmp", f"{USER}@gpu07:{pid}")):
        status, _ = judge(net, *command)
        assert status in (0, 10, 11) and count() == before, command


def test_runtimes_and_facilities_of_another_host(net: Network, gpu07: Host, job: Callable[..., int]) -> None:
    library = next(Path("/usr/lib").glob("**/libgomp.so.1"), None) or next(Path("/usr/lib").glob("**/libomp.so.5"))
    pid = job(gpu07, f"import ctypes; ctypes.CDLL({str(library)!r}); ready(); time.sleep(200)\n")
    status, document = judge(net, "openmp", f"{USER}@gpu07:{pid}")
    assert status == 0 and str(library.resolve()) in json.dumps(document)
    status, document = judge(net, "doctor", f"{USER}@gpu07")
    rows = {row["name"]: row["state"] for row in document["facilities"]}
    assert document["host"] == "gpu07" and rows["process list"] == rows["py-spy"] == "yes"
    assert "injection" not in rows


@pytest.mark.parametrize("version", INTERPRETERS)
def test_the_agent_runs_on_the_targets_own_interpreter(net: Network, version: str, tmp_path: Path) -> None:
    """Every version that is here: the code that is sent must not need more than 3.9 has."""
    source = "import os, time\ndef serve():\n    os.write(1, b'.')\n    time.sleep(100)\nserve()\n"
    command = [INTERPRETERS[version], "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.read(1) == b"."
            status, document = judge(net, "attach", "--via", "env", process.pid, "--for", "1")
        finally:
            process.kill()
    assert (status, document["verdict"]["kind"]) == (11, "waiting")
    assert document["verdict"]["python_frame"]["function"] == "serve"
    assert "100 s" in document["verdict"]["headline"] or "sleep" in document["verdict"]["headline"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("yes Welcome", "prints without end before it answers"),
        ("exit 0", "the connection ended"),
        ("echo 'Permission denied (publickey).' >&2; exit 255", "gpu99: Permission denied (publickey)."),
        ("exec sleep 100", "has not answered within"),
        (
            "t=$(printf %s \"$*\" | sed 's/.*t=\\([0-9a-f]*\\);.*/\\1/'); echo $t hello; echo $t us FreeBSD; "
            "echo $t python 311 /usr/bin/python3; echo $t end; cat >/dev/null",
            "gpu99 is FreeBSD: only Linux hosts and Macs can be looked at.",
        ),
        (
            't=$(printf %s "$*" | sed \'s/.*t=\\([0-9a-f]*\\);.*/\\1/\'); printf "$t hello\\n$t us Darwin\\n'
            '$t python 311 /bin/true\\n$t end\\n"; read l; '
            'printf "$t l Call graph:\\n$t l \\033]0;owned\\007 none\\n$t end\\n"; cat >/dev/null',
            "Process 7 could not be sampled: ",
        ),
        (
            "t=$(printf %s \"$*\" | sed 's/.*t=\\([0-9a-f]*\\);.*/\\1/'); echo $t hello; echo $t us Linux; "
            'echo $t python 311 /bin/true; echo $t spy /x; echo $t end; read l; echo "$t {\\"id\\": [}"; '
            "cat >/dev/null",
            "has sent what is no answer",
        ),
        (
            't=$(printf %s "$*" | sed \'s/.*t=\\([0-9a-f]*\\);.*/\\1/\'); printf "$t hello\\n$t us Linux\\n'
            '$t python 311 /bin/true\\n$t spy /x\\n$t end\\n"; read l; '
            'echo "$t {\\"id\\": 1, \\"kind\\": \\"error\\", \\"body\\": {\\"message\\": '
            '\\"\\\\u001b]0;owned\\\\u0007 no\\", \\"hint\\": \\"x\\"}}"; cat >/dev/null',
            "no",
        ),
    ],
    ids=["noise", "end", "words", "silence", "system", "mac", "garbage", "control"],
)
def test_a_hostile_host_costs_one_sentence(tmp_path: Path, said: str, sentence: str) -> None:
    """Whatever answers in its place: bounded, decoded strictly, and without control characters on the terminal."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\n{said}\n")
    ssh.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [sys.executable, "-m", "harness", "attach", "--connect-timeout", "1", "gpu99:7", "--for", "1"]
    ended = bare(*line, env=environment)
    assert ended.status == 3 and sentence in ended.stderr.decode(), ended.stderr
    assert b"\x1b" not in ended.stderr and ended.stderr.count(b"\n") == 2


def test_thirty_two_hosts_are_one_tree(tmp_path: Path) -> None:
    """Through an ssh that plays the other side, with looks made here: rank 12 is elsewhere, two hosts are dead.

    Their clocks differ by days, which must not matter.
    """
    environment = play_hosts(tmp_path, range(30))
    listed = tmp_path / "hosts"
    listed.write_text("".join(f"gpu{n:02}:{100 + n % 4}\n" for n in range(30)) + "dead1:7\ndead2:7\n")
    line = [sys.executable, "-m", "harness", "attach", "--hosts", listed, "--for", "1"]
    ended = bare(*line, "--json", env=environment)
    group = json.loads(ended.stdout)
    assert ended.status == 10 and len(group["targets"]) == 30, ended.stderr
    assert (group["outlier"]["who"], group["outlier"]["others"]) == ("rank 12 on gpu12", 29)
    dead = sorted(gap["what"] for gap in group["gaps"] if gap["what"].startswith("host "))
    assert dead == ["host dead1", "host dead2"]
    text = " ".join(bare(*line, env=environment).stdout.decode().split())
    assert (
        "29 ranks wait in all_reduce at sync (train.py:40); rank 12 on gpu12 is in refill (train.py:88), busy" in text
    )
    assert "29 × rank 0-11,13-29 on 29 hosts" in text and "1 × gpu12[rank 12]" in text and "host dead1: " in text


def test_a_host_that_sends_what_is_no_look_is_a_row(tmp_path: Path) -> None:
    environment = play_hosts(tmp_path, range(8), odd=0)
    good = (tmp_path / "gpu00.json").read_text()
    hostile = {
        "gpu01": good.replace('"targets":[100]', '"targets":[]'),
        "gpu02": "[" * 200_000,
        "gpu03": good.replace('"samples":4', f'"samples":{"9" * 5000}'),
        "gpu04": good.replace('"MainThread"', '"\udcff"'),
        "gpu05": '{"harness":"0"}',
        "gpu06": good.replace('"counters":[]', '"counters":[{"kind":"io","name":"x","times_s":[],"values":[]}]'),
    }
    for name, look in hostile.items():
        (tmp_path / f"{name}.json").write_bytes(look.encode(errors="surrogateescape"))
    listed = tmp_path / "hosts"
    listed.write_text("".join(f"gpu{n:02}:{100 + n % 4}\n" for n in range(8)))
    line = [sys.executable, "-m", "harness", "attach", "--hosts", listed, "--for", "1", "--json"]
    ended = bare(*line, env=environment)
    group = json.loads(ended.stdout)
    assert [target["target"]["host"] for target in group["targets"]] == ["gpu00", "gpu07"], ended.stderr
    gaps = {gap["what"]: gap["why"] for gap in group["gaps"]}
    assert gaps.keys() == {f"host {name}" for name in hostile}
    assert all("what is no answer" in why for why in gaps.values()), gaps
