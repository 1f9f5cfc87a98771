"""A job of Slurm is reached by `srun --overlap --jobid`: a node of the tests' own, with Debian's daemons.

They run among their own processes, so that a job's pid means something there only, and end with the first of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.far_jobs import READY, SYSTEM_PYTHON
from tests.live.processes import DEADLINE_S, Ended, bare, until, why_no_namespaces

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "unshare")
SPIN = "def spin():\n    ready(pid=os.getpid())\n    while True: pass  # here\nspin()\n"
_CONFIG = """
ClusterName=trial
SlurmctldHost=node0(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node0 NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""
_INIT = """
hostname node0; cd {folder}; mkdir state spool
munged --foreground --key-file={folder}/key --socket={folder}/munge.socket --pid-file={folder}/munge.pid \
    --log-file={folder}/munge.log --seed-file={folder}/seed &
while ! test -S munge.socket; do sleep 0.02; done
slurmctld -D -f {folder}/slurm.conf &
exec slurmd -D -N node0 -f {folder}/slurm.conf
"""


def why_not() -> str | None:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install slurm-wlm (make test does, as root)"
    return why_no_namespaces()


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def ask(node: dict[str, str], *words: str) -> str:
    done = subprocess.run(words, env=node, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def node() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands lead to it. Munge refuses folders that others may write to."""
    folder = Path(tempfile.mkdtemp(prefix="harness-slurm-", dir="/srv"))
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = (one.getsockname()[1], other.getsockname()[1])
    (folder / "slurm.conf").write_text(_CONFIG.format(folder=folder, ports=ports))
    (folder / "key").touch(0o600)
    (folder / "key").write_bytes(os.urandom(64))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTHONUNBUFFERED"))}
    environment = {
        **kept,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "HARNESS_CASES": str(folder / "cases"),
        "TMPDIR": str(folder),
    }
    apart = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (folder / "log").open("wb") as log:
        init = subprocess.Popen(
            [*apart, "sh", "-c", _INIT.format(folder=folder)], env=environment, stdout=log, stderr=log
        )
    try:
        until(
            lambda: init.poll() is not None or ask(environment, "sinfo", "-h", "-o", "%T") == "idle", "the node is idle"
        )
        assert init.poll() is None, (folder / "log").read_text()
        yield environment
    finally:
        init.send_signal(signal.SIGKILL)
        init.wait()
        shutil.rmtree(folder)


@pytest.fixture
def job(node: dict[str, str], tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Its number, and the pid of its Python on the node."""
    script, ready = tmp_path / "train.py", tmp_path / "ready"
    script.write_text(READY + SPIN)
    words = ["sbatch", "--parsable", "-o", str(tmp_path / "out"), "--wrap", f"exec {SYSTEM_PYTHON} {script}"]
    number = ask({**node, "ZOO_READY": str(ready)}, *words)
    until(ready.exists, f"job {number} is ready")
    yield number, json.loads(ready.read_text())["pid"]
    ask(node, "scancel", number)


def harness(node: dict[str, str], *words: object) -> Ended:
    return bare(sys.executable, "-m", "harness", *words, env=node)


def test_a_job_is_reached_by_srun_and_answers_with_its_line(node: dict[str, str], job: tuple[str, int]) -> None:
    number, pid = job
    prefix = f"srun --overlap --jobid {number}"
    looked = harness(node, "attach", "--via", prefix, pid, "--for", "1", "--json")
    document = json.loads(looked.stdout)
    line = (READY + SPIN).splitlines().index("    while True: pass  # here") + 1
    assert (looked.status, document["verdict"]["kind"]) == (11, "busy-python"), looked.stderr
    frame = document["verdict"]["user_frame"]
    assert (frame["function"], frame["line"], Path(frame["file"]).name) == ("spin", line, "train.py")
    assert (document["target"]["host"], document["target"]["pid"]) == (prefix, pid)
    assert document["verdict"]["next"].startswith(f"harness attach --via '{prefix}' {pid} ")
    found = harness(node, "attach", "--via", prefix, "--match", "train.py", "--for", "1", "--json")
    assert json.loads(found.stdout)["target"]["pid"] == pid
    table = json.loads(harness(node, "ps", "--via", prefix, "--json").stdout)
    assert [row["pid"] for row in table["rows"]] == [pid], "the node has no other Python"


def test_a_process_and_a_job_that_are_not_there(node: dict[str, str], job: tuple[str, int]) -> None:
    number, pid = job
    prefix = f"srun --overlap --jobid {number}"
    gone = harness(node, "attach", "--via", prefix, 4194304, "--for", "1")
    sentence = f"harness: There is no process 4194304.\n  next: harness ps --via '{prefix}'\n"
    assert (gone.status, gone.stderr.decode()) == (3, sentence)
    none = harness(node, "attach", "--via", "srun --overlap --jobid 4711", pid, "--for", "1")
    assert none.status == 3 and "invalid job" in none.stderr.decode() and none.stderr.count(b"\n") == 2
