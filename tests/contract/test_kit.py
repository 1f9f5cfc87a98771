"""What a contributor gets: files for GitHub that keep to its schemas, and hooks that run what `make lint` runs.

The workflows have never run; that they are what GitHub reads is all that is known here, and each of them says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import LANE, NOWHERE, find_never_run, write_lane

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = sorted(path for path in GITHUB.glob("ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


def check(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("check_jsonschema")
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("schema", "files"), SCHEMAS.items(), ids=lambda value: str(value)[:30])
def test_files_for_github_keep_to_its_schemas(schema: str, files: list[Path]) -> None:
    assert files
    result = check(schema, files)
    assert result.returncode == 0, result.stdout


def test_a_workflow_that_does_not_is_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on", "run-on"))
    assert check("vendor.github-workflows", [wrong]).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_says_that_it_has_not_run_and_ends_some_day(path: Path) -> None:
    text = path.read_text()
    assert "has not run yet" in text
    assert text.count("runs-on:") == text.count("timeout-minutes:")
    assert text.count("permissions:\n  contents: read\n") == 1


def test_what_a_workflow_makes_is_a_target_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = [target for path in WORKFLOWS for target in re.findall(r"run: make (\w+)", path.read_text())]
    assert made
    assert set(made) <= set(targets)


def test_what_the_lanes_skipped_is_joined_from_where_they_write_it() -> None:
    lane, _, joined = (GITHUB / "workflows" / "test.yml").read_text().partition("\n  skips:")
    assert f"path: {LANE}\n" in lane and "name: lane-${{ matrix.os }}\n" in lane
    assert "needs: everything\n" in joined and "pattern: lane-*\n" in joined
    assert f"python3 -m tests.skips build/lanes/*/{LANE.name}\n" in joined


def test_a_test_that_every_lane_skips_is_found(tmp_path: Path) -> None:
    skip = '<skipped type="pytest.skip" message="needs {}"/>'
    case = '<testcase classname="tests.live.test_x" name="test_{}">{}</testcase>'
    lanes = {
        "one": [("everywhere", skip.format("a Mac")), ("here", ""), ("known", '<skipped type="pytest.xfail"/>')],
        "two": [("everywhere", skip.format("a Mac")), ("here", skip.format("root")), ("of[NOTSET]", skip.format("x"))],
        "three": [("of[3.14]", ""), ("no", skip.format("x").replace("needs x", next(iter(NOWHERE))))],
    }
    for name, cases in lanes.items():
        module = '<testcase name="tests.live.test_x"><skipped type="pytest.skip" message="no ssh"/></testcase>'
        text = "".join(case.format(*one) for one in cases)
        (tmp_path / f"{name}.xml").write_text(f"<testsuites>{text}{module}</testsuites>")
        write_lane([tmp_path / f"{name}.xml"], tmp_path / name)
    never = find_never_run(json.loads((tmp_path / name).read_text()) for name in lanes)
    assert never == {"tests/live/test_x.py::test_everywhere": "needs a Mac"}
    for status, names in ((1, ["one", "two"]), (0, ["three"]), (1, [])):
        words = [sys.executable, "-m", "tests.skips", *(str(tmp_path / name) for name in names)]
        assert subprocess.run(words, cwd=ROOT, check=False, capture_output=True).returncode == status


def test_the_hooks_are_the_tools_of_make_lint() -> None:
    """Without the file names, which pre-commit adds itself."""
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    linted = re.findall(r"@\$\(BIN\)/([^|;\n]*)", recipe)
    hooked = re.findall(r"entry: \.venv(?:-check)?/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert [" ".join(word for word in line.split() if not word.startswith("native/")) for line in linted] == hooked


def test_the_sdist_has_all_that_is_kept_here() -> None:
    """Named one by one in pyproject.toml, so that nothing else is published; then nothing may be forgotten either."""
    included = re.findall(r'^    "/(.*)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if kept.returncode:
        pytest.skip("this is no checkout of git")
    assert {name.partition("/")[0] for name in kept.stdout.split("\n") if name} <= {*included, "pyproject.toml"}
