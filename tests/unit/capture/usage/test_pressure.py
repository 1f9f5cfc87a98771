"""When memory is near a limit: each limit at each level once; what the kernel would drop by itself is no pressure."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.machine.cgroup import read_bound
from harness.capture.usage.courses import ProcessCourse
from harness.capture.usage.pressure import Pressure
from harness.capture.usage.sampler import Sampler
from harness.diagnose.death.judge import judge
from harness.evidence.crash import CrashFrame
from harness.evidence.glimpse import Glimpse, GlimpseThread
from harness.evidence.memory import GroupKills
from harness.evidence.run import Ending
from tests.builders.evidence import run_evidence
from tests.builders.timelines import GIB, timeline

MIB = 1 << 20
GROUP = "sys/fs/cgroup/job"
V1_STAT = "cache 1\ninactive_file 0\nactive_file 0\ntotal_inactive_file {0}\ntotal_active_file {0}\n"
V2_STAT = "anon 1\ninactive_file {0}\nactive_file {0}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    write(tmp_path, "proc/41/cgroup", "0::/job\n")
    write(tmp_path, "proc/41/status", "Name: py\nVmSize: 50000 kB\nVmRSS: 40000 kB\nVmData: 30000 kB\nThreads: 1\n")
    write(tmp_path, "proc/41/limits", "")
    write(tmp_path, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 600000 kB\n")
    for name, text in (("memory.events", "oom_kill 0\n"), ("memory.max", str(100 * MIB)), ("memory.current", "0")):
        write(tmp_path, f"{GROUP}/{name}", text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def use(root: Path, mib: int, file_mib: int = 0) -> None:
    write(root, f"{GROUP}/memory.current", str(mib * MIB))
    write(root, f"{GROUP}/memory.stat", V2_STAT.format(file_mib * MIB // 2))


def test_a_group_is_told_at_each_level_once(root: Path) -> None:
    sampler, pressure = Sampler(0, root=root), Pressure()
    told = []
    for mib in (80, 91, 92, 98, 99, 91):
        use(root, mib)
        sampler.sample([41])
        told.append([near.why.partition(" of control")[0] for near in pressure.check(sampler, [41])])
    assert told == [[], ["91 of the 100 MiB"], [], ["98 of the 100 MiB"], [], []]


def test_pages_of_files_are_no_pressure(root: Path) -> None:
    sampler, pressure = Sampler(0, root=root), Pressure()
    use(root, 99, file_mib=50)
    sampler.sample([41])
    assert pressure.check(sampler, [41]) == []


def test_user_limits_and_the_machine(root: Path) -> None:
    sampler, pressure = Sampler(0, root=root), Pressure()
    sampler.sample([41])
    course = sampler.processes[41]
    course.limits["RLIMIT_AS"] = (52000 << 10, None)
    (near,) = pressure.check(sampler, [41])
    assert near.pids == (41,) and "ulimit -v" in near.why
    assert pressure.check(sampler, [41]) == []
    course.limits.clear()
    write(root, "proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 20000 kB\n")
    sampler.sample([41])
    assert pressure.check(sampler, [41]) == []  # it is somebody else's
    write(root, "proc/meminfo", "MemTotal: 50000 kB\nMemAvailable: 1000 kB\n")
    sampler.sample([41])
    (near,) = pressure.check(sampler, [41])
    assert "of this machine" in near.why


def test_one_that_would_be_there_within_a_moment_is_near(root: Path) -> None:
    sampler, pressure = Sampler(0, root=root), Pressure()
    use(root, 60)
    sampler.sample([41])
    sampler.total.add(sampler.now_s() + 1.0, 40 * MIB)
    assert pressure.check(sampler, [41]) == []
    sampler.total.add(sampler.now_s() + 1.1, 60 * MIB)  # 200 MiB a second, 40 are left
    (near,) = pressure.check(sampler, [41])
    assert near.pids == (41,)


def test_the_largest_are_looked_at_and_no_stranger(root: Path) -> None:
    sampler, pressure = Sampler(0, root=root), Pressure()
    use(root, 95)
    sampler.sample([41])
    for pid, size in ((51, 10), (52, 70), (53, 30)):
        sampler.processes[pid] = ProcessCourse(pid)
        sampler.processes[pid].rss.add(0.0, size * MIB)
        sampler.processes[pid].groups = (str(root / GROUP),) if pid != 53 else ()
    (near,) = pressure.check(sampler, [41, 51, 52, 53])
    assert near.pids == (52, 41)


@pytest.mark.parametrize("stat", [V1_STAT, V2_STAT])
def test_what_is_bound_is_what_is_used_without_the_pages_of_files(stat: str, tmp_path: Path) -> None:
    write(tmp_path, "memory.current", "1000")
    write(tmp_path, "memory.stat", stat.format(150))
    assert read_bound(tmp_path) == 700
    assert read_bound(tmp_path / "absent") is None


KILLED = Ending(signo=9)
AT_DEATH = GroupKills(9.0, 10.0, 1)


def glimpse(at_s: float, *threads: GlimpseThread, pid: int = 100, event: str = "memory") -> Glimpse:
    return Glimpse(pid, None, at_s, event, "97 of the 100 MiB were in use", threads)  # type: ignore[arg-type]


def seen(function: str, **facts: object) -> GlimpseThread:
    frames = (CrashFrame("python", "ones", "/x/site-packages/numpy/core.py", 9),)
    return GlimpseThread((*frames, CrashFrame("python", function, "/job/train.py", 40)), **facts)  # type: ignore[arg-type]


def killed(*glimpses: Glimpse, kills: tuple[GroupKills, ...] = (AT_DEATH,)):
    return judge(run_evidence("", KILLED, timeline=timeline(GIB, kills=kills), glimpses=glimpses)).verdict


def test_an_oom_kill_says_where_it_was_when_it_was_last_seen_near_the_limit() -> None:
    verdict = killed(glimpse(5.0, seen("load")), glimpse(9.6, seen("collate")))
    assert "; 0.4 s before, Python was in collate (train.py:40)" in verdict.headline
    assert verdict.context_frame is not None and verdict.context_frame.function == "collate"
    assert verdict.user_frame is None and verdict.python_frame is None
    (ground,) = [ground.fact for ground in verdict.grounds if "py-spy" in ground.source]
    assert ground.startswith("0.4 s before the end, when 97 of the 100 MiB were in use, Python was in collate")


def test_the_thread_that_held_the_interpreter_comes_before_the_main_thread() -> None:
    both = (seen("wait", tid=100, name="MainThread"), seen("collate", tid=101, owns_gil=True))
    assert killed(glimpse(9.6, *both)).context_frame.function == "collate"
    idle = (seen("poll", tid=101), seen("wait", tid=100, name="MainThread"))
    assert killed(glimpse(9.6, *idle)).context_frame.function == "wait"


@pytest.mark.parametrize(
    "other", [glimpse(9.6, seen("collate"), pid=101), glimpse(9.6, seen("collate"), event="failure"), glimpse(9.6)]
)
def test_another_process_another_event_or_an_empty_look_tells_nothing(other: Glimpse) -> None:
    verdict = killed(other)
    assert verdict.kind == "oom-kill" and verdict.context_frame is None and "Python was in" not in verdict.headline


def test_a_kill_for_another_reason_is_not_explained_by_memory() -> None:
    verdict = killed(glimpse(9.6, seen("collate")), kills=())
    assert verdict.kind == "killed" and verdict.context_frame is None and "collate" not in verdict.headline
