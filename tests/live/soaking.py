"""A training, a server and a pool under `harness run` while everything goes wrong, each beside a bare twin.

`python -m tests.live.soaking [SECONDS] [SEED]`, or `make soak`: rounds of three patients and their twins. Meanwhile, as
the seed has it: harness, its relays, holders and tools are killed, never a patient; the patients are looked at, from
here and from namespaces with other clocks; jobs beside them crash; the disk of cases and temporary files fills.
At the end of a round the twins must be alike, in statuses, output and files, but for 64 KiB per killed relay, and
nothing may be left behind. What is wrong is printed with its round, and at the end the figures; 1 if anything was.

Limits: this machine's clock is never set, time namespaces shift what counts from the boot; without root there are
neither those nor full disks, and what others use too (/dev/shm, /tmp, mounts) is not looked at. All three keepers of
a channel are never killed at once: that takes its read end with it (native/relay.c).
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.measure import adopt_orphans
from tests.live.left_behind import (
    OWNER,
    PATIENT,
    Process,
    collect_orphans,
    hide_shared_folders,
    list_processes,
    surroundings,
)
from tests.live.processes import DEADLINE_S, shell_status, state_of, why_no_namespaces

KINDS = ("training", "server", "pool")
PROGRAM = Path(__file__).with_name("observed") / "patients.py"
STEPS_PER_S, ROUNDS_S, SHORTEST_ROUND_S, PAUSE_S = 20, (20, 40, 80, 160), 5, 3.0
LOST_BYTES = 64 * 1024
_SETTLED_S = 61  # harness/capture/crash/stale_directories.py
_MOST_WRONG, _MOST_CHARACTERS, _MOST_LOOKS = 100, 1500, 2
_LINE = re.compile(rb"(?:training|server|pool) [0-9]{8} [0-9a-z]+ \.*")
_ZONES = ("UTC", "Pacific/Kiritimati", "America/St_Johns", "Asia/Kathmandu", ":/nonexistent", "XYZ-25:61")
_CRASHES = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "abort": "import os; os.abort()",
    "raise": "raise ValueError('soaked')",
    "exit 7": "import sys; sys.exit(7)",
}
# Words, and what their exit status may be: 10 would be a fault that is not there, 3 is judged apart.
_LOOKS = {
    "attach": (("attach", "{pid}", "--for", "1s"), {0, 11}),
    "attach --json": (("attach", "{pid}", "--for", "1s", "--json"), {0, 11}),
    "watch": (("watch", "{pid}"), {0, 10, 11, 130}),
    "ps": (("ps",), {0}),
    "openmp": (("openmp", "{pid}"), {0, 11}),
}


class Side:
    """A look, or a job that crashes, beside the patients."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], allowed: set[int], target: int | None) -> None:
        self.name, self.process, self.allowed, self.target = name, process, allowed, target
        self.begun = time.monotonic()
        self.hit = False
        self.interrupt_at = self.begun + 4.0 if name == "watch" else None


class Soak:
    """`hidden`: folders in which nothing but ours is seen; null: it has no mount namespace of its own."""

    def __init__(self, seconds: float, seed: int, folder: Path, hidden: list[Path] | None) -> None:
        self.chance, self.folder, self.until = random.Random(seed), folder, time.monotonic() + seconds
        self.pause_s = min(PAUSE_S, seconds / 20)
        self.counts: collections.Counter[str] = collections.Counter()
        self.rounds = 0
        self.wrong = 0
        self.mounts = hidden is not None
        self.hidden = hidden or []
        self.clocks = self.mounts and not subprocess.run(["unshare", "--time", "true"], check=False).returncode

    def run(self) -> None:
        while (left_s := self.until - time.monotonic()) > SHORTEST_ROUND_S or not self.rounds:
            self.rounds += 1
            folder = self.folder / f"round-{self.rounds}"
            folder.mkdir()
            before = surroundings(self.hidden)
            wrong = Round(self, folder).run(min(left_s, self.chance.choice(ROUNDS_S)))
            remove_round(folder, self.mounts)
            wrong += [f"left behind: {name}" for name in sorted(self.settle(before))]
            for line in wrong:
                self.tell_wrong(line)
            print(f"round {self.rounds} is over, {len(wrong)} wrong", flush=True)

    def end_early(self, signo: int, frame: object) -> None:
        """After this round."""
        self.until = 0.0

    def settle(self, before: set[str]) -> set[str]:
        """What is there more than before, when all that was going to end has ended."""
        give_up = time.monotonic() + DEADLINE_S
        while True:
            self.counts["orphans collected"] += collect_orphans()
            more = surroundings(self.hidden) - before
            if not more or time.monotonic() > give_up:
                return more
            time.sleep(0.05)

    def tell_wrong(self, line: str) -> None:
        self.wrong += 1
        if self.wrong <= _MOST_WRONG:
            print(f"round {self.rounds}: {line[:_MOST_CHARACTERS]}", flush=True)


class Round:
    """Three patients and their twins, from their start until nothing of them is left."""

    def __init__(self, soak: Soak, folder: Path) -> None:
        self.soak, self.chance, self.counts, self.folder = soak, soak.chance, soak.counts, folder
        self.disk = folder / "disk"
        self.disk.mkdir()
        if soak.mounts:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "soak", self.disk], check=True)
        (self.disk / "tmp").mkdir()
        (folder / "tmp").mkdir()
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: collections.Counter[str] = collections.Counter()
        self.sides: list[Side] = []
        self.wrong: list[str] = []

    def run(self, seconds: float) -> list[str]:
        steps, status = max(20, int(seconds * STEPS_PER_S)), self.chance.choice((0, 3))
        for kind in KINDS:
            self.start(kind, steps, status, bare=False)
            self.start(kind, steps, status, bare=True)
        happens = [(self.kill, 4), (self.look, 5), (self.crash, 3)] + [(self.fill_disk, 2)] * self.soak.mounts
        give_up = time.monotonic() + seconds * 3 + 4 * DEADLINE_S
        while not all((self.folder / name / "status").exists() for name in self.started):
            if time.monotonic() > give_up:
                self.wrong.append(f"not over: {list(list_processes(self.folder))}")
                break
            time.sleep(self.chance.uniform(0.2, 1.8) * self.soak.pause_s)
            self.tend_sides()
            self.chance.choices([one for one, _ in happens], [weight for _, weight in happens])[0]()
        self.end()
        for kind in KINDS:
            self.compare(kind)
        return self.wrong

    # What is started.

    def environment(self, owner: str) -> dict[str, str]:
        cases, temporary = (self.chance.choice((self.disk, self.folder)) / name for name in ("cases", "tmp"))
        mine = {"HARNESS_CASES": str(cases), "TMPDIR": str(temporary), "TZ": self.chance.choice(_ZONES)}
        mine["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / owner / "torch")  # made by an import of torch
        return {**os.environ, **mine, OWNER: f"{self.folder}/{owner}/"}

    def clock(self) -> list[str]:
        """Words that put another clock before a command, now and then."""
        if not self.soak.clocks or self.chance.random() < 0.7:
            return []
        shift = self.chance.choice((-1000, 3600, 864000))
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        shift = max(shift, -int(uptime_s / 2))
        self.counts["clocks of another namespace"] += 1
        return ["unshare", "--time", "--monotonic", str(shift), "--boottime", str(shift), "--"]

    def spawn(self, owner: str, words: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        place = self.folder / owner
        place.mkdir(exist_ok=True)
        with (place / "stdout").open("wb") as out, (place / "stderr").open("wb") as err:
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            return subprocess.Popen(words, env=env, start_new_session=True, **files)  # Ctrl-C is for us alone

    def start(self, kind: str, steps: int, status: int, *, bare: bool) -> None:
        """Its status is kept by a shell above it, whoever else is gone; the shell is the patient, too."""
        owner = f"{kind}-{'bare' if bare else 'run'}"
        files = self.folder / owner / "files"
        files.mkdir(parents=True)
        job = [sys.executable, str(PROGRAM), kind, str(files), str(steps), str(status)]
        place = self.folder / owner
        keeps = f'"$@"; status=$?; echo $status > "{place}/new"; mv "{place}/new" "{place}/status"; exit $status'
        words = ["env", f"{PATIENT}=1", "sh", "-c", keeps, "sh", *job]
        run = [] if bare else [*self.clock(), sys.executable, "-m", "harness", "run", "--"]
        self.started[owner] = self.spawn(owner, run + words, self.environment(owner))

    def all_started(self) -> list[subprocess.Popen[bytes]]:
        return [*self.started.values(), *(side.process for side in self.sides)]

    # What goes wrong.

    def kill(self) -> None:
        """Some of what belongs to one run, or to one look; a holder only alone and while its supervisor lives."""
        leaders = {process.pid for process in self.all_started()}
        ours = [one for one in list_processes(self.folder) if not one.patient]
        found = [one._replace(role="supervisor") if one.pid in leaders else one for one in ours]
        sides = {f"side-{number}": side for number, side in enumerate(self.sides) if side.target is not None}
        owners = sorted({one.owner for one in found if self.may_lose(one.owner, found) or one.owner in sides})
        if not owners:
            return
        looked = [owner for owner in owners if owner in sides]
        owner = self.chance.choice(looked if looked and self.chance.random() < 0.5 else owners)
        there = [one for one in found if one.owner == owner]
        holders = [one for one in there if one.role == "holder"]
        others = [one for one in there if one.role != "holder"]
        if holders and self.started[owner].poll() is None and self.chance.random() < 0.25:
            chosen = holders
        else:
            chosen = self.chance.sample(others, self.chance.randint(min(1, len(others)), len(others)))
        for one in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
                role = f"{one.role} of a look" if owner in sides else one.role
                self.counts[f"killed: {role}"] += 1
                self.killed[f"{owner} {one.role}"] += 1
                if owner in sides:
                    sides[owner].hit = True
            time.sleep(self.chance.choice((0.0, 0.01, 0.05)))

    def may_lose(self, owner: str, found: list[Process]) -> bool:
        """A supervised patient that has begun to write and whose channels have a holder."""
        if not owner.endswith("-run") or not (self.folder / owner / "stdout").stat().st_size:
            return False
        return any(one.role == "holder" for one in found if one.owner == owner)

    def look(self) -> None:
        if sum(side.process.poll() is None for side in self.sides) >= _MOST_LOOKS:
            return
        there = [one for one in list_processes(self.folder) if one.patient and one.owner.endswith("-run")]
        targets = [one for one in there if one.role == "python"]
        if not targets:
            return
        name, target = self.chance.choice(sorted(_LOOKS)), self.chance.choice(targets).pid
        words, allowed = _LOOKS[name]
        self.begin_side(name, [word.format(pid=target) for word in words], allowed, target)

    def crash(self) -> None:
        """With an untouched twin as well; their output is compared at once, as it is over soon."""
        name = self.chance.choice(sorted(_CRASHES))
        job = [sys.executable, "-c", f"print('x' * 100000, flush=True); {_CRASHES[name]}"]
        bare = subprocess.run(job, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
        side = self.begin_side(name, ["run", "-q", "--", *job], {shell_status(bare.returncode)}, None)
        self.counts["bytes of crashing jobs"] += len(bare.stdout)
        side.process.wait(2 * DEADLINE_S)
        stdout, stderr = ((self.place_of(side) / name).read_bytes() for name in ("stdout", "stderr"))
        if stdout != bare.stdout or bare.stderr not in stderr:
            self.wrong.append(f"{name}: another output: {self.told_by(side)}")

    def begin_side(self, name: str, words: list[str], allowed: set[int], target: int | None) -> Side:
        owner = f"side-{len(self.sides)}"
        words = [*self.clock(), sys.executable, "-m", "harness", *words]
        side = Side(name, self.spawn(owner, words, self.environment(owner)), allowed, target)
        self.sides.append(side)
        self.counts[f"{'crash' if target is None else 'look'}: {name}"] += 1
        return side

    def fill_disk(self) -> None:
        """Or empties it: what is there stays, what comes has no room."""
        filler = self.disk / "filler"
        if filler.exists():
            filler.unlink()
            return
        self.counts["disks filled"] += 1
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            for size in (65536, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    # What must hold.

    def place_of(self, side: Side) -> Path:
        return self.folder / f"side-{self.sides.index(side)}"

    def told_by(self, side: Side) -> str:
        texts = [(self.place_of(side) / name).read_bytes()[-700:] for name in ("stdout", "stderr")]
        return f"{side.process.args!r} {[text.decode(errors='replace') for text in texts]}"

    def tend_sides(self) -> None:
        for side in self.sides:
            if side.interrupt_at is not None and time.monotonic() > side.interrupt_at and side.process.poll() is None:
                side.process.send_signal(signal.SIGINT)
                side.interrupt_at = None

    def end(self) -> None:
        """All of it is over by itself, within the deadline; what is not is told and ended."""
        give_up = time.monotonic() + 3 * DEADLINE_S
        while (left := list(list_processes(self.folder))) and time.monotonic() < give_up:
            self.tend_sides()
            for process in self.all_started():
                process.poll()
            time.sleep(0.05)
        for one in left:
            self.wrong.append(f"left behind: {one}, {state_of(one.pid)}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        for process in self.all_started():
            process.wait(DEADLINE_S)
        for side in self.sides:
            self.judge(side)
        for folder in (self.disk / "tmp", self.folder / "tmp", *self.soak.hidden):
            self.clear(folder)

    def clear(self, folder: Path) -> None:
        """What may be in a temporary folder: what a killed harness has left and the next one removes, when it has
        settled, and a case that found no room in the folder of cases.
        """
        (self.disk / "filler").unlink(missing_ok=True)
        for path in folder.glob("harness-[0-9]*"):
            self.counts["directories of a killed harness, removed by the next"] += 1
            os.utime(path, (time.time() - _SETTLED_S,) * 2)
        env = {**self.environment("next"), "TMPDIR": str(folder), "HARNESS_CASES": str(self.folder / "cases")}
        self.spawn("next", [sys.executable, "-m", "harness", "run", "-q", "--", "true"], env).wait(DEADLINE_S)
        for path in folder.glob("harness-cases-*"):
            if any(path.glob("*/*")):
                self.counts["cases kept in a temporary folder"] += 1
                shutil.rmtree(path)
        if folder not in self.soak.hidden:
            self.wrong += [f"left behind in TMPDIR: {path}" for path in sorted(folder.rglob("*"))]

    def judge(self, side: Side) -> None:
        status = shell_status(side.process.returncode)
        self.counts[f"status {status} of {side.name}"] += 1
        if side.hit:
            return
        text = b"".join((self.place_of(side) / name).read_bytes() for name in ("stdout", "stderr"))
        gone = status == 3 and side.target is not None  # the patient had ended: read from what it says
        if status not in side.allowed and not (gone and b"no process" in text.lower()):
            self.wrong.append(f"{side.name}: status {status}: {self.told_by(side)}")
        elif side.name != "raise" and b"Traceback (most recent" in text:
            self.wrong.append(f"{side.name}: a traceback: {self.told_by(side)}")

    def compare(self, kind: str) -> None:
        ours, twin = (self.folder / f"{kind}-{how}" for how in ("run", "bare"))
        statuses = [file.read_text() if file.exists() else None for file in (ours / "status", twin / "status")]
        if statuses[0] != statuses[1]:
            told = (ours / "stderr").read_bytes()[-700:].decode(errors="replace")
            self.wrong.append(f"{kind}: status {statuses[0]!r}, its twin has {statuses[1]!r}; {told}")
        if not self.killed[f"{ours.name} supervisor"]:
            status = self.started[ours.name].returncode
            if status != self.started[twin.name].returncode:
                self.wrong.append(f"{kind}: harness has left with {status}")
        files = [{path.name: path.read_bytes() for path in (place / "files").iterdir()} for place in (ours, twin)]
        if files[0] != files[1]:
            self.wrong.append(f"{kind}: other files: {[sorted(some) for some in files]}")
        for name in ("stdout", "stderr"):
            self.compare_output(f"{kind} {name}", ours / name, twin / name)

    def compare_output(self, name: str, ours: Path, twin: Path) -> None:
        got, whole = ours.read_bytes(), twin.read_bytes()
        self.counts["bytes of output compared"] += len(whole)
        lines = [line for line in got.split(b"\n") if _LINE.fullmatch(line)]
        expected = whole.split(b"\n")[:-1]
        relays = self.killed[f"{ours.parent.name} relay"]
        if not relays:
            if lines != expected or (name.endswith("stdout") and got != whole):
                self.wrong.append(f"{name}: {len(got)} bytes, {len(lines)} of {len(expected)} lines, no relay killed")
            return
        rest = iter(expected)
        if not all(line in rest for line in lines):
            self.wrong.append(f"{name}: lines that its twin has not, or not in this order")
        lost = len(whole) - sum(len(line) + 1 for line in lines)
        self.counts["bytes lost"] += lost
        self.counts["bytes that killed relays may lose"] += relays * LOST_BYTES
        if lost > relays * LOST_BYTES:
            self.wrong.append(f"{name}: {lost} bytes lost with {relays} relays killed")


def remove_round(folder: Path, mounted: bool) -> None:
    if mounted:
        subprocess.run(["umount", folder / "disk"], check=True)
    shutil.rmtree(folder)


def tell_figures(soak: Soak, begun: float) -> None:
    seconds = time.monotonic() - begun
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    busy_s = sum(one.ru_utime + one.ru_stime for one in usage)
    for name in sorted(soak.counts):
        print(f"{soak.counts[name]:>12,}  {name}")
    print(f"{soak.rounds} rounds of {len(KINDS)} patients in {seconds:.0f} s, {busy_s / seconds:.2f} processors busy")
    print(f"{soak.wrong} wrong")


def main() -> int:
    seconds, seed = (int(word) for word in (*sys.argv[1:], *("3600", "1")[len(sys.argv) - 1 :]))
    begun = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    adopt_orphans()
    without = why_no_namespaces()
    print(f"{seconds} s, seed {seed}" + (f"; no full disks, no other clocks: {without}" if without else ""), flush=True)
    hidden = None if without else hide_shared_folders()
    with tempfile.TemporaryDirectory(prefix="harness-soak-") as name:
        soak = Soak(seconds, seed, Path(name), hidden)
        for signo in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signo, soak.end_early)
        soak.run()
    tell_figures(soak, begun)
    return bool(soak.wrong)


if __name__ == "__main__":
    sys.exit(main())
