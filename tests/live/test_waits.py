"""What a thread waits for, of programs whose state is known: they say where they will stand before they stand there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.capture.living.waits.thread_wait import read_wait
from harness.capture.machine.syscalls import CALLS
from harness.evidence.living.look import Wait
from tests.builders import hang_driver
from tests.live.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its /proc")

Run = Callable[[str], subprocess.Popen[str]]
# The descriptors of other users' processes are shown to root only.
ONLY_WRITER = "whose only writer " + ("is itself" if os.geteuid() == 0 else "that we can see is itself")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Starts a program; its first line of output is there when this returns, in `said`."""
    started: list[subprocess.Popen[str]] = []

    def start(source: str) -> subprocess.Popen[str]:
        script = tmp_path / f"job{len(started)}.py"
        script.write_text(f"import os, signal, socket, sys, time\nsignal.alarm(50)\n{source}")
        process = subprocess.Popen([sys.executable, "-u", str(script)], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(process)
        assert process.stdout
        process.said = process.stdout.readline().split()  # type: ignore[attr-defined]
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def await_call(pid: int, *names: str) -> Wait:
    def standing() -> Wait | None:
        wait = read_wait(pid, pid)
        return wait if wait and wait.syscall in names else None

    return until(standing, f"{pid} in {names}")


def start_hang(name: str, tmp_path: Path) -> hang_driver.Hang:
    return hang_driver.start(hang_driver.HANGS / f"{name}.py", sys.executable, False, tmp_path)


def test_silent_socket_names_its_peer(tmp_path: Path) -> None:
    with start_hang("socket_silent", tmp_path) as hang:
        wait = await_call(hang.pid, "recvfrom")
        (peer,) = [pid for pid in hang_driver.list_group(hang.pid) if pid != hang.pid]
        assert wait.peer_pids == (peer,)
        assert wait.target and hang.ready["facts"][0] in wait.target
        assert "ESTABLISHED, nothing received" in wait.target
        assert str(Path(f"/proc/{hang.pid}/fd/{wait.fd}").readlink()).startswith("socket:")


def test_fifo_that_nobody_writes_is_named(tmp_path: Path) -> None:
    with start_hang("fifo_open", tmp_path) as hang:
        wait = await_call(hang.pid, "openat")
        assert wait.target and "commands.fifo for reading; nobody has opened it for writing" in wait.target
        assert wait.fd is None


def test_fifo_whose_only_writer_is_the_reader(tmp_path: Path) -> None:
    with start_hang("fifo_read", tmp_path) as hang:
        wait = await_call(hang.pid, "read")
        assert wait.target and f"signals.fifo, which is empty and {ONLY_WRITER}" in wait.target
        assert wait.peer_pids == ()


@pytest.mark.parametrize(("name", "call"), [("file_lock_flock", "flock"), ("file_lock_fcntl", "fcntl")])
def test_file_lock_names_its_holder(name: str, call: str, tmp_path: Path) -> None:
    with start_hang(name, tmp_path) as hang:
        wait = await_call(hang.pid, call)
        assert wait.peer_pids == tuple(map(int, hang.ready["facts"]))
        assert wait.target and f"held by {wait.peer_pids[0]} (python" in wait.target


def test_full_pipe_and_the_wait_for_its_writer(tmp_path: Path) -> None:
    with start_hang("subprocess_pipe_full", tmp_path) as hang:
        writing = await_call(hang.stuck_pid, "write")
        assert writing.target and f"which is full and whose reader is {hang.pid}" in writing.target
        waiting = await_call(hang.pid, "wait4")
        assert waiting.peer_pids == (hang.stuck_pid,)
        assert waiting.target and waiting.target.startswith(f"waits for child {hang.stuck_pid} (python")


def test_pipe_of_a_zombie(tmp_path: Path) -> None:
    with start_hang("unreaped_zombie", tmp_path) as hang:
        wait = await_call(hang.pid, "read")
        assert wait.target and ONLY_WRITER in wait.target


def test_pipe_with_a_writer_elsewhere(run: Run) -> None:
    """The near miss of the above: this one may still be written to."""
    process = run(
        "r, w = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0: signal.alarm(50); time.sleep(50)\n"
        "os.close(w); print(child); os.read(r, 1)"
    )
    child = int(process.said[0])  # type: ignore[attr-defined]
    wait = await_call(process.pid, "read")
    os.kill(child, signal.SIGKILL)
    assert wait.target and f"which is empty and whose writer is {child}" in wait.target
    assert wait.peer_pids == (child,)


def test_any_child_and_the_state_of_each(run: Run) -> None:
    process = run("one, two = os.fork() or time.sleep(40), os.fork() or time.sleep(40); print(one, two); os.wait()")
    children = tuple(sorted(map(int, process.said)))  # type: ignore[attr-defined]
    assert await_call(process.pid, "wait4").peer_pids == children
    os.kill(children[1], signal.SIGSTOP)
    name = Path(f"/proc/{process.pid}/comm").read_text().strip()
    expected = f"waits for any child: {children[0]} ({name}, sleeping), {children[1]} ({name}, stopped)"
    until(lambda: await_call(process.pid, "wait4").target == expected, expected)
    for child in children:
        os.kill(child, signal.SIGKILL)


def test_unix_socket_names_its_peer(run: Run) -> None:
    process = run(
        "a, b = socket.socketpair()\n"
        "child = os.fork()\n"
        "if child == 0: a.close(); signal.alarm(50); time.sleep(50)\n"
        "b.close(); print(child); a.recv(1)"
    )
    child = int(process.said[0])  # type: ignore[attr-defined]
    wait = await_call(process.pid, "recvfrom")
    os.kill(child, signal.SIGKILL)
    assert wait.peer_pids == (child,)
    assert wait.target and "Unix socket" in wait.target


def test_socket_with_bytes_not_taken(run: Run) -> None:
    """The writer's side: what it has sent lies unread at its peer's."""
    process = run(
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "one = socket.create_connection(server.getsockname()); other, _ = server.accept()\n"
        "print(server.getsockname()[1]); one.sendall(bytes(1 << 26))"
    )
    wait = await_call(process.pid, "sendto")
    assert wait.target and wait.target.startswith(f"writes to 127.0.0.1:{process.said[0]} (ESTABLISHED")  # type: ignore[attr-defined]
    assert "bytes not acknowledged" in wait.target and "this process itself" in wait.target


def test_listening_server(run: Run) -> None:
    process = run("s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]); s.accept()")
    wait = await_call(process.pid, "accept", "accept4")
    assert wait.target == f"accepts connections: 127.0.0.1:{process.said[0]} (LISTEN, nobody waiting)"  # type: ignore[attr-defined]


def test_what_epoll_watches(tmp_path: Path, run: Run) -> None:
    process = run(
        "import select\n"
        "r, w = os.pipe(); e = select.epoll(); e.register(r, select.EPOLLIN); print(r, e.fileno()); e.poll()"
    )
    watched, epoll = map(int, process.said)  # type: ignore[attr-defined]
    wait = await_call(process.pid, "epoll_wait", "epoll_pwait")
    assert wait.fd == epoll
    assert wait.target and f"fd {watched}: pipe:[" in wait.target and ONLY_WRITER in wait.target


@pytest.mark.parametrize("how", ["select.select([r], [], [])", "p = select.poll(); p.register(r, 1); p.poll()"])
def test_what_poll_and_select_wait_for(how: str, run: Run) -> None:
    process = run(f"import select\nr, w = os.pipe(); print(r); {how}")
    wait = await_call(process.pid, "select", "pselect6", "poll", "ppoll")
    assert wait.fd == int(process.said[0])  # type: ignore[attr-defined]
    assert wait.target and f"fd {wait.fd}: pipe:[" in wait.target


def test_poll_of_a_process(run: Run) -> None:
    process = run(
        "import select\n"
        "child = os.fork() or time.sleep(40)\n"
        "fd = os.pidfd_open(child); print(child); p = select.poll(); p.register(fd, 1); p.poll()"
    )
    child = int(process.said[0])  # type: ignore[attr-defined]
    wait = await_call(process.pid, "poll", "ppoll")
    os.kill(child, signal.SIGKILL)
    assert wait.peer_pids == (child,)
    assert wait.target and f"the end of process {child} (python" in wait.target


def test_connect_that_nobody_answers(run: Run) -> None:
    """Its backlog is full, so that the next connection is left waiting."""
    process = run(
        "server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(0)\n"
        "first = socket.create_connection(server.getsockname())\n"
        "print(server.getsockname()[1]); second = socket.socket(); second.connect(server.getsockname())"
    )
    wait = await_call(process.pid, "connect")
    port = process.said[0]  # type: ignore[attr-defined]
    assert wait.target and wait.target.startswith(f"connects to 127.0.0.1:{port}: 127.0.0.1:{port} (SYN_SENT")


def test_sleep_has_a_length(run: Run) -> None:
    process = run("print('ready'); time.sleep(40)")
    wait = await_call(process.pid, "clock_nanosleep", "pselect6", "select")
    assert wait.target and ("s are left" in wait.target or "sleep" in wait.target)


def test_lock_word_is_told_with_its_value(run: Run) -> None:
    process = run("import threading\nlock = threading.Lock(); lock.acquire(); print('ready'); lock.acquire()")
    wait = await_call(process.pid, "futex")
    assert wait.target == f"lock word {wait.arguments[0]}, value 0x0"


def test_semaphore_of_several_processes(run: Run) -> None:
    process = run(
        "import multiprocessing\nlock = multiprocessing.Lock(); lock.acquire(); print('ready'); lock.acquire()"
    )
    wait = await_call(process.pid, "futex")
    assert wait.target and "shared with other processes in /dev/shm/" in wait.target


def test_who_runs_waits_for_nothing(run: Run) -> None:
    process = run("print('ready')\nwhile True: pass")
    until(lambda: read_wait(process.pid, process.pid) is None, "it runs")


def test_who_is_gone_waits_for_nothing(run: Run) -> None:
    process = run("print('ready')")
    process.wait()
    assert read_wait(process.pid, process.pid) is None


def fake_task(proc: Path, syscall: str | None) -> Path:
    task = proc / "1" / "task" / "1"
    task.mkdir(parents=True)
    (task / "wchan").write_text("futex_do_wait")
    if syscall is not None:
        (task / "syscall").write_text(syscall)
    return proc


def test_without_the_right_to_see_only_wchan_is_told(tmp_path: Path) -> None:
    proc = fake_task(tmp_path, "202 0x1 0x80 0x0 0x0 0x0 0x0 0x1 0x1")
    (proc / "1/task/1/syscall").chmod(0)
    if os.access(proc / "1/task/1/syscall", os.R_OK):
        (proc / "1/task/1/syscall").unlink()  # root may read everything
    assert read_wait(1, 1, proc) == Wait(None, wchan="futex_do_wait")


def test_outside_of_any_call(tmp_path: Path) -> None:
    wait = read_wait(1, 1, fake_task(tmp_path, "-1 0x7ffe 0x7f00"))
    assert wait and wait.syscall is None and wait.target and "in no system call" in wait.target


def test_unknown_call_has_its_number(tmp_path: Path) -> None:
    wait = read_wait(1, 1, fake_task(tmp_path, "9999 0x1 0x2 0x0 0x0 0x0 0x0 0x1 0x1"))
    assert wait and wait.syscall == "system call 9999" and wait.arguments[:2] == ("0x1", "0x2")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to ask the system's own headers")
def test_numbers_are_those_of_the_headers() -> None:
    names = CALLS[os.uname().machine]
    source = "#include <sys/syscall.h>\n" + "\n".join(f"{name} SYS_{name}" for name, _ in names.values())
    told = subprocess.run(["gcc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=True).stdout
    numbers = dict(line.split() for line in told.splitlines() if len(line.split()) == 2)
    known = {name: int(number) for name, number in numbers.items() if number.isdigit()}  # old headers lack the newest
    assert len(known) > 60
    assert {name: number for number, (name, _) in names.items() if name in known} == known
