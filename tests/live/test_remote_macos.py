"""Processes of another Mac: a real sshd whose host says that it is one; its `sample` and `ps` print as Apple's.

No Mac is here. What `sample` prints is the fixture of test_macos.py, and the real text where it lies beside the
project; what it says when it refuses, and the columns of `ps`, are Apple's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.evidence.living.look import Look
from tests.builders.macos_sample import FIRST, HUNG, REAL, SECOND
from tests.live.far_jobs import READY, SPIN, SYSTEM_PYTHON, harness, judge
from tests.live.processes import bare
from tests.live.sshd import USER, Network, network, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
HUNG_PID, ROOTS_PID, REAL_PID, WORKER_PID, ODD_PID, GONE_PID = 4711, 4712, 34409, 4713, 4714, 4799
REFUSAL = (
    f"sample cannot examine process {ROOTS_PID} (Python) for unknown reasons, even though it appears to exist; "
    "try running with `sudo`."
)
TABLE = f"""  PID  PPID USER       ELAPSED      TIME    RSS STAT COMMAND
    1     0 root   12-03:04:05   9:00.00  10000 Ss   /sbin/launchd
 {HUNG_PID}    88 me           01:40   0:07.@@ 204800 S+   /opt/My/Python train.py --name two words
 {ROOTS_PID}     1 root         01:39   0:01.00   1024 T    /usr/bin/python3.13 serve.py train.py
 {WORKER_PID}  4720 me           01:38   0:01.00   1024 U    /opt/My/Python train.py worker
 4720  {HUNG_PID} me           01:38   0:00.00    100 S    sh -c train.py
 {ODD_PID}     1 me        02:00:00   0:01.00   1024 S    /opt/python-build train.py
{REAL_PID}     1 me           16:36   0:01.00   1024 S    vim python3 train.py
"""
UNAME = '#!/bin/sh\n[ "$1" = -s ] && echo Darwin && exit\nexec /usr/bin/uname "$@"\n'
# Counts up what has been used of the CPU from one call to the next, by half a second: a file beside it remembers.
PS = """#!/bin/sh
case "$*" in
    "-p "*) grep -q "^ *$2 " {folder}/table ;;
    "-M -p "*) printf "USER PID TT\\nme $3 s0\\n     $3 s0\\n     $3 s0\\n" ;;
    "-axww -o pid,ppid,user,etime,time,rss,stat,command")
        if test -e {folder}/again; then used=60; else used=10; : >{folder}/again; fi
        sed s/@@/$used/ {folder}/table ;;
    *) echo "ps: illegal option: $*" >&2; exit 1 ;;
esac
"""
SAMPLE = """#!/bin/sh
echo "$@" >> {folder}/asked
if test "$1" = {roots} && test "$(id -u)" != 0; then echo '{refusal}' >&2; exit 1; fi
echo "Sampling process $1 for $2 seconds with 1 millisecond of run time between samples" >&2
cat {folder}/$1.txt
"""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """`mac`: what a Mac lacks is not there either: /proc, and a python3 that could be asked without a window."""
    with network() as made:
        folder = made.folder / "apple"
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "table").write_text(TABLE)
        (folder / f"{HUNG_PID}.txt").write_text(HUNG.removesuffix("\n"))
        (folder / f"{ROOTS_PID}.txt").write_text(HUNG.replace(str(HUNG_PID), str(ROOTS_PID)))
        (folder / f"{WORKER_PID}.txt").write_text(HUNG)
        if REAL.exists():
            (folder / f"{REAL_PID}.txt").write_bytes(REAL.read_bytes())
        programs = made.folder / "apple-bin"
        programs.mkdir()
        python = f"#!/bin/sh\n: > {folder}/window\n"
        sample = SAMPLE.format(folder=folder, roots=ROOTS_PID, refusal=REFUSAL)
        texts = {"uname": UNAME, "ps": PS.format(folder=folder), "sample": sample, "python3": python}
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        made.add("gpu07")
        mac = made.add("mac")
        mac.inside("mount", "--bind", programs, "/usr/local/bin")
        mac.inside("mount", "-t", "tmpfs", "tmpfs", "/proc")
        yield made


@pytest.fixture
def apple(net: Network) -> Path:
    """What was asked for on the Mac, beginning with nothing."""
    net.count_connections()
    folder = net.folder / "apple"
    for name in ("again", "asked"):
        (folder / name).unlink(missing_ok=True)
    return folder


def test_a_hung_search_on_a_mac_gets_the_verdict_of_a_local_look(net: Network, apple: Path) -> None:
    status, document = judge(net, "attach", f"{USER}@mac:{HUNG_PID}", "--for", "2")
    assert (status, document["verdict"]["kind"], document["verdict"]["status"]) == (
        10,
        "deadlock-openmp",
        "established",
    )
    told = " ".join(ground["fact"] for ground in document["verdict"]["grounds"])
    assert FIRST in told and SECOND in told
    assert (document["target"]["host"], document["target"]["pid"]) == ("mac", HUNG_PID)
    assert (apple / "asked").read_text() == f"{HUNG_PID} 2 -mayDie -file /dev/stdout\n"
    assert net.count_connections() == 1 and not (apple / "window").exists()
    look = msgspec.json.decode((Path(document["case"]) / "look.json").read_bytes(), type=Look)
    assert look.platform.startswith("macosx-") and look.processes[0].tools[0].tool == "sample"
    (gap,) = [gap for gap in document["gaps"] if gap["what"] == "Python lines"]
    assert gap["fix"] == f"ssh -t {USER}@mac sudo py-spy dump --pid {HUNG_PID}"


@pytest.mark.skipif(not REAL.exists(), reason="the real text of a hung search is not beside the project")
def test_the_real_text_over_ssh(net: Network, apple: Path) -> None:
    status, document = judge(net, "attach", f"{USER}@mac:{REAL_PID}", "--for", "1")
    assert (status, document["verdict"]["kind"], document["verdict"]["status"]) == (
        10,
        "deadlock-openmp",
        "established",
    )
    told = " ".join(ground["fact"] for ground in document["verdict"]["grounds"])
    assert "0x108750000" in told and "0x12a458000" in told
    look = msgspec.json.decode((Path(document["case"]) / "look.json").read_bytes(), type=Look)
    assert len(look.processes[0].threads) == sum(" Thread_" in line for line in REAL.read_text().splitlines())


def test_what_sample_refuses_is_said_with_what_to_type_and_root_may(net: Network, apple: Path) -> None:
    refused = harness(net, "attach", f"{USER}@mac:{ROOTS_PID}", "--for", "1")
    sentence = (
        f"harness: Process {ROOTS_PID} could not be sampled: {REFUSAL}\n"
        f"  next: harness attach --sudo {USER}@mac:{ROOTS_PID}; or, where it asks for a password, "
        f"ssh -t {USER}@mac sudo sample {ROOTS_PID} 5 -file /dev/stdout\n"
    )
    assert (refused.status, refused.stderr.decode()) == (3, sentence)
    status, document = judge(net, "attach", "--sudo", f"{USER}@mac:{ROOTS_PID}", "--for", "1")
    assert (status, document["verdict"]["kind"]) == (10, "deadlock-openmp")


def test_a_process_that_is_not_there_or_another_than_the_one_asked_for(net: Network, apple: Path) -> None:
    gone = harness(net, "attach", f"{USER}@mac:{GONE_PID}", "--for", "1")
    assert (gone.status, gone.stderr.decode()) == (
        3,
        f"harness: There is no process {GONE_PID}.\n  next: harness ps {USER}@mac:\n",
    )
    assert not (apple / "asked").exists()
    other = harness(net, "attach", f"{USER}@mac:{WORKER_PID}", "--for", "1")
    assert other.status == 3 and f"what came is about process {HUNG_PID}" in other.stderr.decode()


def test_a_mac_among_linux_hosts_and_several_of_its_processes(net: Network, apple: Path) -> None:
    script = net.folder / "spin.py"
    script.write_text(READY + SPIN)
    host = net.hosts["gpu07"]
    pid = host.start_job(SYSTEM_PYTHON, script, user=USER)
    listed = net.folder / "hosts"
    listed.write_text(f"{USER}@gpu07:{pid}\n{USER}@mac:{HUNG_PID}\n{USER}@mac:{ROOTS_PID}\n")
    try:
        status, group = judge(net, "attach", "--hosts", listed, "--for", "1")
    finally:
        host.end_job(pid)
    kinds = {one["target"]["host"]: one["verdict"]["kind"] for one in group["targets"]}
    assert status == 10 and kinds == {"gpu07": "busy-python", "mac": "deadlock-openmp"}
    (gap,) = [gap for gap in group["gaps"] if gap["what"] == "a process"]
    assert f"Process {ROOTS_PID} could not be sampled" in gap["why"] and gap["fix"].startswith("harness attach --sudo")
    assert net.count_connections() == 2


def test_the_table_of_a_mac_has_its_python_processes_and_match_takes_the_topmost(net: Network, apple: Path) -> None:
    status, table = judge(net, "ps", f"{USER}@mac")
    rows = {row["pid"]: row for row in table["rows"]}
    assert status == 0 and list(rows) == [HUNG_PID, ROOTS_PID, WORKER_PID], "the oldest first, and only Python"
    hung = rows[HUNG_PID]
    assert (hung["ppid"], hung["user"], hung["age_s"], hung["threads"]) == (88, "me", 100.0, 3)
    assert (hung["word"], hung["rss_bytes"], hung["argv"][:2]) == ("busy", 200 << 20, ["/opt/My/Python", "train.py"])
    assert 0.05 < hung["cpu"] <= 0.5, "half a second of CPU, in a second and a bit"
    assert (rows[ROOTS_PID]["word"], rows[WORKER_PID]["word"]) == ("stopped", "waits for the disk")
    status, document = judge(net, "attach", f"{USER}@mac:", "--match", "--name two", "--for", "1")
    assert (status, document["target"]["pid"]) == (10, HUNG_PID)
    (apple / "asked").unlink()
    judge(net, "attach", f"{USER}@mac:", "--match", "train.py", "--for", "1")
    asked = [line.split()[0] for line in (apple / "asked").read_text().splitlines()]
    assert asked == [str(HUNG_PID), str(ROOTS_PID)], "the worker is below one of them"
    none = harness(net, "attach", f"{USER}@mac:", "--match", "nobody.py")
    assert none.status == 3 and "No Python process of mac has 'nobody.py'" in none.stderr.decode()


@pytest.mark.parametrize(
    ("words", "following"),
    [
        (("watch", f"{USER}@mac:{HUNG_PID}"), f"harness attach {USER}@mac:{HUNG_PID}"),
        (("openmp", f"{USER}@mac:{HUNG_PID}"), f"harness attach {USER}@mac:{HUNG_PID}"),
        (("doctor", f"{USER}@mac"), f"harness ps {USER}@mac:"),
    ],
    ids=["watch", "openmp", "doctor"],
)
def test_what_does_not_work_there_is_one_sentence(
    net: Network, apple: Path, words: tuple[str, ...], following: str
) -> None:
    ended = harness(net, *words)
    sentence = f"harness: mac is a Mac: only attach and ps look at other Macs.\n  next: {following}\n"
    assert (ended.status, ended.stderr.decode()) == (3, sentence)


def test_names_of_functions_bring_no_control_characters_to_the_terminal(net: Network, apple: Path) -> None:
    text = HUNG.replace("search(float const*, long)", "search\x1b]0;owned\x07()")
    hung = apple / f"{HUNG_PID}.txt"
    with contextlib.ExitStack() as stack:
        stack.callback(hung.write_text, HUNG)
        hung.write_bytes(text.encode() + b"\xff\xfe")
        shown = harness(net, "attach", f"{USER}@mac:{HUNG_PID}", "--for", "1")
    assert shown.status == 10 and b"deadlock-openmp" in shown.stdout
    assert b"\x1b" not in shown.stdout and b"\x07" not in shown.stdout


def test_a_link_that_breaks_leaves_the_processes_that_were_sampled(tmp_path: Path) -> None:
    """An ssh that plays a Mac, and ends when it is asked for the second process."""
    (tmp_path / "text").write_text(HUNG)
    ssh = tmp_path / "ssh"
    ssh.write_text(
        "#!/bin/sh\nt=$(printf %s \"$*\" | sed 's/.*t=\\([0-9a-f]*\\);.*/\\1/')\n"
        'printf "$t hello\\n$t us Darwin\\n$t end\\n"; read l\n'
        f'sed "s/^/$t l /" {tmp_path}/text; echo "$t end"; read l\n'
    )
    ssh.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HARNESS_CASES": str(tmp_path / "cases")}
    line = [sys.executable, "-m", "harness", "attach", "--json", f"mac:{HUNG_PID}", f"mac:{ROOTS_PID}", "--for", "1"]
    ended = bare(*line, env=environment)
    group = json.loads(ended.stdout)
    assert ended.status == 10 and [one["target"]["pid"] for one in group["targets"]] == [HUNG_PID]
    (gap,) = [gap for gap in group["gaps"] if gap["what"] == "a process"]
    assert gap["why"].startswith(f"Process {ROOTS_PID} and those after it were not sampled: mac: the connection ended")
    assert gap["fix"] == f"harness attach mac:{ROOTS_PID}"


def test_a_prefix_leads_to_a_mac_as_well(net: Network, apple: Path) -> None:
    prefix = f"nsenter -t {net.hosts['mac'].init} -a sudo -n -u {USER}"
    refused = harness(net, "attach", "--via", prefix, ROOTS_PID, "--for", "1")
    typed = f"{prefix} sudo sample {ROOTS_PID} 5 -file /dev/stdout"
    assert refused.status == 3 and typed in refused.stderr.decode()
    assert f"harness attach --sudo --via {shlex.quote(prefix)} {ROOTS_PID}; or" in refused.stderr.decode()
    status, document = judge(net, "attach", "--via", prefix, HUNG_PID, "--for", "1")
    assert status == 10 and json.dumps(document["verdict"]["component"]).count("libomp") == 1
