"""What is sent to other hosts: complete, old enough, and its stand-in for msgspec says what msgspec says."""

from __future__ import annotations

import ast
import importlib.util
import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

from harness.capture.remote.bundle import collect_modules
from harness.capture.remote.table import leave_out_descendants, read_proc
from harness.evidence.living.look import Look
from tests.builders.playing import make_look

MODULES = collect_modules()
SENT = {rank: msgspec.json.encode(make_look(rank, rank == 12)) for rank in (3, 12)}
READ = {rank: msgspec.json.decode(sent, type=Look) for rank, sent in SENT.items()}  # before msgspec is another one


def test_only_what_is_sent_or_in_the_standard_library_is_imported_at_once() -> None:
    for name, (_, source) in MODULES.items():
        for node in ast.parse(source, feature_version=(3, 9)).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for imported in names:
                known = imported in MODULES or imported.partition(".")[0] in {*sys.stdlib_module_names, "msgspec"}
                assert known, f"{name} imports {imported}"


def test_no_union_of_types_is_evaluated() -> None:
    """`X | None` outside of an annotation is an error before 3.10."""
    for name, (_, source) in MODULES.items():
        nodes = list(ast.walk(ast.parse(source)))
        noted = [getattr(node, field, None) for node in nodes for field in ("annotation", "returns")]
        annotations = {id(part) for tree in noted if tree is not None for part in ast.walk(tree)}
        unions = [node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)]
        evaluated = [node.lineno for node in unions if id(node) not in annotations and _names_type(node)]
        assert not evaluated, f"{name}: lines {evaluated}"


def _names_type(union: ast.BinOp) -> bool:
    words = {node.id for node in ast.walk(union) if isinstance(node, ast.Name)}
    nothing = any(isinstance(side, ast.Constant) and side.value is None for side in (union.left, union.right))
    return nothing or any(word[:1].isupper() and not word.isupper() for word in words)


def test_nothing_judges_over_there() -> None:
    assert not [name for name in MODULES if name.startswith(("harness.diagnose", "harness.report", "harness.commands"))]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, under msgspec's name; the real one is put back."""
    for name in ("msgspec", "msgspec.json", "msgspec.structs", "msgspec.msgpack"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_loader("msgspec", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "msgspec", module)
    exec(compile(MODULES["msgspec"][1], "structs.py", "exec"), module.__dict__)
    for name in ("msgspec.json", "msgspec.structs", "msgspec.msgpack"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return module


def load_evidence(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The types of a look, made anew with whatever `msgspec` is now."""
    for name in [name for name in MODULES if name.startswith("harness.evidence")]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("harness.evidence.living.look")
    return vars(module)


def test_a_look_reads_the_same_with_and_without_msgspec(plain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, sent in SENT.items():
        read = plain.decode(sent, load_evidence(monkeypatch)["Look"])
        assert read.processes[0].threads[0].stack[0].function == ("refill" if rank == 12 else "gloo::wait")
        assert isinstance(read.targets, tuple) and hash(read.processes[0].threads[0].stack[0])
        assert msgspec.json.decode(plain.encode(read), type=Look) == READ[rank]


def test_the_stand_in_keeps_to_the_names_and_refuses_what_is_missing(plain: ModuleType) -> None:
    namespace: dict[str, Any] = {"__name__": "made_up", "msgspec": plain}
    source = """
from __future__ import annotations
class Inner(msgspec.Struct, frozen=True):
    address: int = msgspec.field(name="addr")
class Outer(msgspec.Struct, frozen=True):
    inner: tuple[Inner, ...] | None
    word: str | None = None
"""
    module = ModuleType("made_up")
    sys.modules["made_up"] = module
    try:
        module.__dict__.update(namespace)
        exec(source, module.__dict__)
        outer = module.__dict__["Outer"]
        assert plain.decode(b'{"inner": [{"addr": 7}], "more": 1}', outer).inner[0].address == 7
        assert plain.decode(b'{"inner": null}', outer) == outer(None)
        assert plain.encode(outer((module.__dict__["Inner"](7),))) == b'{"inner":[{"addr":7}],"word":null}'
        assert plain.structs.replace(outer(None), word="x").word == "x"
        for wrong in (b"{}", b"[]", b"{", b'{"inner": [{}]}'):
            with pytest.raises(plain.MsgspecError):
                plain.decode(wrong, outer)
        with pytest.raises(AttributeError):
            outer(None).word = "y"
    finally:
        del sys.modules["made_up"]


STAT = "7 (py (x) 3) S 1 7 7 0 -1 4194560 900 0 5 0 150 50 0 0 20 0 3 0 1000 20000000 256 18446744073709551615"
EXE = "lrwxrwxrwx 1 me   grp 0 Nov 17 07:18 /proc/7/exe"


def test_what_a_shell_tells_of_a_process() -> None:
    """Its numbers as man 5 proc_pid_stat orders them."""
    lines = [
        "u 110.00 200.00",
        f"s {STAT}",
        f"x {EXE} -> /opt/x -> y/python3.9 (deleted)",
        "a 7 python",
        "a 7 ",
        "a 8 no",
    ]
    ((pid, seen),) = read_proc(lines)
    assert (pid, seen.names, seen.ppid, seen.user, seen.state) == (7, ("py (x) 3", "python3.9"), 1, "me", "S")
    assert (seen.cpu_s, seen.age_s, seen.threads, seen.argv) == (2.0, 100.0, 3, ("python", ""))
    ((_, unread),) = read_proc([f"s {STAT}", f"x {EXE}"])
    assert (unread.names, unread.user, unread.argv) == (("py (x) 3", ""), "me", ("py (x) 3",))


@pytest.mark.parametrize(
    "line",
    [
        "s 7 (python3",
        "s 7 (python3) S 1 7",
        "s x " + STAT,
        f"s {STAT}".replace(" 256 ", f" {'9' * 40} "),
        f"s {STAT}".replace(" 150 ", f" {'9' * 400} "),
        "s 7 (" + "9" * 5000 + ") S",
    ],
)
def test_what_is_no_line_of_proc_is_no_process(line: str) -> None:
    assert not dict(read_proc([line, "u x", "x -> y"]))


def test_only_the_topmost_are_taken_and_a_circle_ends() -> None:
    parents = {7: 6, 6: 5, 5: 1, 8: 1, 9: 10, 10: 9}
    assert list(leave_out_descendants([5, 7, 8], parents)) == [5, 8], "6, between 5 and 7, is none of them"
    assert list(leave_out_descendants([6, 8], parents)) == [6, 8]
    assert list(leave_out_descendants([9], parents)) == [9]
