"""The rooms of the package keep to their doors, and the house rules that a machine can check hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "harness"
FORBIDDEN = {
    "capture": {"diagnose", "remedy", "report", "commands"},
    "evidence": {"capture", "diagnose", "remedy", "report", "commands"},
    "diagnose": {"capture", "remedy", "report", "commands"},
    "remedy": {"diagnose", "report", "commands"},  # it changes what capture has described, when a command says so
    "report": {"capture", "commands"},
}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "_abi.py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        rooms |= {name.split(".")[1] for name in names if name.startswith("harness.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_room_reaches_around_another(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    assert not imported_rooms(path) & FORBIDDEN.get(room, set())


def test_the_arrow_check_sees_an_arrow(tmp_path: Path) -> None:
    module = tmp_path / "x.py"
    module.write_text("def f():\n    from harness.diagnose import judge\n    return judge\n")
    assert imported_rooms(module) == {"diagnose"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_answers(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_broad_excepts_are_at_the_top_of_the_command_line_and_around_one_capture_step_only() -> None:
    broad = [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    ]
    assert set(broad) <= {"commands/main.py", "capture/doctor/facilities.py"}
    assert len(broad) <= 2


def test_we_never_set_the_variable_that_hides_the_fault() -> None:
    """It may be named in warnings and remedies, never assigned or passed to a child."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                assert not any(
                    isinstance(key, ast.Constant) and key.value == "KMP_DUPLICATE_LIB_OK" for key in node.keys
                )
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                assert "KMP_DUPLICATE_LIB_OK" not in ast.unparse(node)
