"""The rooms of the package keep to their doors, and the house rules that a machine can check hold.

Each check of the tree is a function of a package, so that a made-up one shows that it sees what it is there for.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.capture.crash import crash_link
from harness.commands.job import _list_words

PACKAGE = Path(__file__).parents[2] / "harness"
FORBIDDEN = {
    "capture": {"diagnose", "documents", "remedy", "report", "commands"},
    "evidence": {"capture", "diagnose", "documents", "remedy", "report", "commands"},
    "documents": {"capture", "diagnose", "remedy", "report", "commands"},
    "diagnose": {"capture", "remedy", "report", "commands"},
    "remedy": {"diagnose", "report", "commands"},  # it changes what capture has described, when a command says so
    "report": {"capture", "commands"},
}
# Each may import those before it.
ORDERS = {
    "harness.capture": (
        *("proc", "machine", "usage", "files", "arrays", "stacks", "openmp", "living"),
        *("crash", "cores", "run", "experiment", "doctor", "remote"),
    ),
    "harness.diagnose": (
        *("words", "plumbing", "frames", "signature", "growth", "memory"),
        *("environment", "death", "living", "stalled_end", "experiment"),
    ),
}
MOST_MODULES = 15
BROAD = ("Exception", "BaseException")
# Not renamed yet; two classes of one name in one layer are two words for a reader to tell apart.
TWICE = {
    "capture": {
        "Call",
        "Frame",
        "Held",
        "Holders",
        "Identity",
        "Link",
        "Listing",
        "Memory",
        "Moment",
        "Reading",
        "Record",
        "Row",
        "Sighting",
        "Slot",
        "Walk",
        "_Answer",
        "_Search",
        "_Seen",
    },
    "commands": {"Asked"},
    "diagnose": {"Finding"},
    "documents": {"Outcome"},
    "evidence": {"Room"},
}
# Of these the first seven keep what they caught; the others clean up and raise it again.
BROAD_EXCEPTS = [
    "capture/doctor/facilities.py _look",
    "capture/remote/agent/serve.py _answer",
    "capture/remote/fan_out.py _put_answer",
    "capture/run/detached.py _supervise",
    "capture/run/stall/forked_look.py _work",
    "capture/stacks/tools.py _work_as_tool",
    "commands/main.py main",
    "capture/files/formats/elf.py __init__",
    "capture/files/scan_cache.py _replace",
    "capture/remote/session.py __init__",
    "commands/job.py supervise",
    "commands/job.py supervise",
    "commands/repro/arm.py run_trial",
    "commands/repro/command.py repro_command",
]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def list_modules(package: Path) -> dict[str, Path]:
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if path.name != "_abi.py":  # generated
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


MODULES = list_modules(PACKAGE)


def list_arrows(package: Path) -> set[tuple[str, str]]:
    """(importing module, imported module), those within functions and for the type checker too."""
    modules = list_modules(package)
    return {
        (name, target)
        for name, path in modules.items()
        for target in list_imports(path, modules)
        if target != name  # `from harness.x import x`, of a package by itself
    }


def list_imports(path: Path, modules: Iterable[str]) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (name for name in (whole if whole in modules else node.module,) if name in modules)


def list_forbidden(package: Path) -> set[tuple[str, str]]:
    return {
        (source, target)
        for source, target in list_arrows(package)
        if "." in source and "." in target and target.split(".")[1] in FORBIDDEN.get(source.split(".")[1], ())
    }


def list_upward(package: Path) -> set[tuple[str, str]]:
    """Arrows to a room that stands higher, and rooms without a place in the order."""
    upward, arrows = set(), list_arrows(package)
    for room, order in ORDERS.items():
        for source, target in arrows:
            children = child_of(source, room), child_of(target, room)
            places = [order.index(child) if child in order else len(order) for child in children if child]
            if len(places) == 2 and (places[0] < places[1] or len(order) in places):
                upward.add((source, target))
    return upward


def child_of(module: str, room: str) -> str | None:
    return module[len(room) + 1 :].split(".")[0] if module.startswith(f"{room}.") else None


def find_cycles(package: Path) -> list[list[str]]:
    """Of modules; and of the children of each folder, where a room is one with all that is in it."""
    arrows = list_arrows(package)
    rooms = {name.rpartition(".")[0] for name in list_modules(package)} - {""}
    graphs = [arrows, *({(child_of(a, room), child_of(b, room)) for a, b in arrows} for room in sorted(rooms))]
    return [cycle for graph in graphs if (cycle := _find_cycle(graph))]


def _find_cycle(arrows: Iterable[tuple[str | None, str | None]]) -> list[str]:
    targets: dict[str, set[str]] = defaultdict(set)
    for source, target in arrows:
        if source and target and source != target:
            targets[source].add(target)
    try:
        TopologicalSorter(targets).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def list_crowded(package: Path) -> dict[str, int]:
    """Folders with more modules than somebody takes in at a glance."""
    count = Counter(path.parent for path in list_modules(package).values() if path.name != "__init__.py")
    return {str(folder.relative_to(package)): number for folder, number in count.items() if number > MOST_MODULES}


def list_named_twice(package: Path) -> dict[str, set[str]]:
    places: dict[tuple[str, str], int] = Counter(
        (path.relative_to(package).parts[0], node.name)
        for path in list_modules(package).values()
        for node in parse(path).body
        if isinstance(node, ast.ClassDef)
    )
    twice: dict[str, set[str]] = defaultdict(set)
    for (layer, name), number in places.items():
        if number > 1:
            twice[layer].add(name)
    return dict(twice)


def list_broad_excepts(package: Path) -> list[str]:
    found: list[str] = []
    for path in list_modules(package).values():
        _note_broad(parse(path), f"{path.relative_to(package)} <module>", found)
    return sorted(found)


def _note_broad(node: ast.AST, where: str, found: list[str]) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        where = f"{where.split()[0]} {node.name}"
    if isinstance(node, ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(one is None or (isinstance(one, ast.Name) and one.id in BROAD) for one in caught):
            found.append(where)
    for child in ast.iter_child_nodes(node):
        _note_broad(child, where, found)


def make_package(folder: Path, modules: dict[str, str]) -> Path:
    for name, source in modules.items():
        path = folder / "harness" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
        path.write_text(source)
    return folder / "harness"


def test_no_room_reaches_around_another() -> None:
    assert list_forbidden(PACKAGE) == set()


def test_the_arrow_check_sees_an_arrow(tmp_path: Path) -> None:
    source = "def f():\n    from harness.diagnose import judge\n    return judge\n"
    package = make_package(tmp_path, {"capture/run/x.py": source, "diagnose/judge.py": ""})
    assert list_forbidden(package) == {("harness.capture.run.x", "harness.diagnose.judge")}


def test_a_room_imports_only_those_that_stand_lower() -> None:
    assert list_upward(PACKAGE) == set()


def test_the_order_check_sees_who_reaches_up_and_who_has_no_place(tmp_path: Path) -> None:
    modules = {
        "capture/proc.py": "from harness.capture.run.x import f\n",
        "capture/run/x.py": "import harness.capture.proc\nimport harness.capture.new.y\n",
        "capture/new/y.py": "",
    }
    assert list_upward(make_package(tmp_path, modules)) == {
        ("harness.capture.proc", "harness.capture.run.x"),
        ("harness.capture.run.x", "harness.capture.new.y"),
    }


def test_nothing_imports_itself_by_way_of_others() -> None:
    assert find_cycles(PACKAGE) == []


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({"a/x.py": "def f():\n    import harness.a.y\n", "a/y.py": "from harness.a.x import f\n"}, 2),  # and in a/
        ({"a/b/x.py": "import harness.a.c.x\n", "a/b/y.py": "", "a/c/x.py": "from harness.a.b import y\n"}, 1),
        ({"a/x.py": "from harness import a\n", "a/y.py": "from harness.a import x\n"}, 0),
    ],
)
def test_the_cycle_check_sees_modules_and_rooms(tmp_path: Path, modules: dict[str, str], expected: int) -> None:
    assert len(find_cycles(make_package(tmp_path, modules))) == expected


def test_what_is_imported_by_name_is_there() -> None:
    """While the command is busy; a wrong name would only make the answer to a crash late."""
    assert {*crash_link._MODULES, *_list_words()} - {"pystack.engine"} <= MODULES.keys()


def test_no_folder_is_crowded() -> None:
    assert list_crowded(PACKAGE) == {}


def test_the_size_check_counts_modules(tmp_path: Path) -> None:
    package = make_package(tmp_path, {f"{room}/x{n}.py": "" for room in ("a", "a/b") for n in range(15)})
    assert list_crowded(package) == {}
    assert list_crowded(make_package(tmp_path, {"a/b/one_more.py": ""})) == {"a/b": 16}


def test_a_class_name_means_one_thing_in_a_layer() -> None:
    """With equality: who renames one takes it off the list."""
    assert list_named_twice(PACKAGE) == TWICE


def test_the_name_check_looks_into_each_layer(tmp_path: Path) -> None:
    modules = {"a/x.py": "class One: ...\n", "a/b/y.py": "class One: ...\n", "c.py": "class One: ...\n"}
    assert list_named_twice(make_package(tmp_path, modules)) == {"a": {"One"}}


def test_every_broad_except_is_known_by_name() -> None:
    assert list_broad_excepts(PACKAGE) == sorted(BROAD_EXCEPTS)


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException as e", " (OSError, BaseException)"])
def test_the_except_check_sees_each_kind(tmp_path: Path, caught: str) -> None:
    source = f"class C:\n    def f(self):\n        try:\n            g()\n        except{caught}:\n            pass\n"
    harmless = "try:\n    f()\nexcept (OSError, ValueError):\n    pass\n"
    assert list_broad_excepts(make_package(tmp_path, {"a/x.py": source, "a/y.py": harmless})) == ["a/x.py f"]


@pytest.mark.parametrize("path", MODULES.values(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_answers(path: Path) -> None:
    assert ast.get_docstring(parse(path))


def test_we_never_set_the_variable_that_hides_the_fault() -> None:
    """It may be named in warnings and remedies, never assigned or passed to a child."""
    for path in MODULES.values():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Dict):
                assert not any(
                    isinstance(key, ast.Constant) and key.value == "KMP_DUPLICATE_LIB_OK" for key in node.keys
                )
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                assert "KMP_DUPLICATE_LIB_OK" not in ast.unparse(node)
