"""Who sets a variable before a program starts: the environment and start-up files, as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.capture.openmp.startup import read_settings


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("site", "stdlib", "prefix/bin", "prefix/etc/conda/activate.d", "prefix/conda-meta", "home"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def found(tree: Path, environment: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    places = ([str(tree / "site")], str(tree / "prefix"), str(tree / "stdlib"), tree / "home")
    rows = read_settings(environment or {}, *places)
    mine = [row for row in rows if row.source == "environment" or row.source.startswith(str(tree))]
    return [(row.name, row.value, row.source.removeprefix(f"{tree}/")) for row in mine]


def test_the_environment_by_allow_list(tree: Path) -> None:
    environment = {"KMP_DUPLICATE_LIB_OK": "TRUE", "OMP_NUM_THREADS": "4", "SECRET_TOKEN": "x", "HOME": "/root"}
    assert found(tree, environment) == [
        ("KMP_DUPLICATE_LIB_OK", "TRUE", "environment"),
        ("OMP_NUM_THREADS", "4", "environment"),
    ]


@pytest.mark.parametrize(
    ("file", "line", "name", "value"),
    [
        ("site/sitecustomize.py", 'os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"', "KMP_DUPLICATE_LIB_OK", "TRUE"),
        ("site/usercustomize.py", "os.environ.setdefault('OMP_NUM_THREADS', '1')", "OMP_NUM_THREADS", "1"),
        ("stdlib/sitecustomize.py", 'os.putenv("MKL_NUM_THREADS", str(2))', "MKL_NUM_THREADS", "str(2"),
        ("site/fix.pth", "import os; os.environ['KMP_DUPLICATE_LIB_OK']='1'", "KMP_DUPLICATE_LIB_OK", "1"),
        ("prefix/bin/activate", "export KMP_DUPLICATE_LIB_OK=TRUE", "KMP_DUPLICATE_LIB_OK", "TRUE"),
        ("prefix/etc/conda/activate.d/x.sh", 'export OMP_NUM_THREADS="8"', "OMP_NUM_THREADS", "8"),
        ("prefix/etc/conda/activate.d/x.fish", "set -gx OMP_NUM_THREADS 8", "OMP_NUM_THREADS", "8"),
        ("prefix/etc/conda/activate.d/x.csh", "setenv OMP_NUM_THREADS 8", "OMP_NUM_THREADS", "8"),
        ("prefix/conda-meta/state", '{"env_vars": {"KMP_DUPLICATE_LIB_OK": "TRUE"}}', "KMP_DUPLICATE_LIB_OK", "TRUE"),
        ("home/.bashrc", "export KMP_DUPLICATE_LIB_OK=TRUE  # mac", "KMP_DUPLICATE_LIB_OK", "TRUE"),
        ("home/.zshrc", "KMP_DUPLICATE_LIB_OK=True", "KMP_DUPLICATE_LIB_OK", "True"),
    ],
)
def test_a_start_up_file_is_named_with_its_line(tree: Path, file: str, line: str, name: str, value: str) -> None:
    (tree / file).write_text(f"# first\n{line}\n")
    assert found(tree) == [(name, value, f"{file}:2")]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("site/sitecustomize.py", '# os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"'),
        ("site/sitecustomize.py", 'print(os.environ.get("KMP_DUPLICATE_LIB_OK", "unset"))'),
        ("site/sitecustomize.py", 'if os.getenv("OMP_NUM_THREADS", "1") == "1": pass'),
        ("site/sitecustomize.py", 'assert os.environ["OMP_NUM_THREADS"] == "1"'),
        ("prefix/bin/activate", "unset KMP_DUPLICATE_LIB_OK"),
        ("home/.bashrc", "export OMP_NUM_THREADS=4"),  # a user's shell is searched for one variable only
        ("site/module.py", 'os.environ["KMP_DUPLICATE_LIB_OK"] = "TRUE"'),  # no start-up file
    ],
)
def test_what_sets_nothing_is_not_named(tree: Path, file: str, line: str) -> None:
    (tree / file).write_text(line + "\n")
    assert found(tree) == []


def test_files_that_cannot_be_read_are_passed_over(tree: Path) -> None:
    (tree / "site/sitecustomize.py").mkdir()
    (tree / "site/x.pth").write_bytes(b"\xff\xfe\x00KMP_DUPLICATE_LIB_OK=1\n")
    (tree / "home/.bashrc").symlink_to("gone")
    assert found(tree) == [("KMP_DUPLICATE_LIB_OK", "1", "site/x.pth:1")]
