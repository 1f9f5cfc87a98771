"""The documents for people: no link leads nowhere, what is made from tables is current, and the README stays short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate import list_pages

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages"
HELP = ROOT / "tests" / "data" / "help"  # what test_documents.py holds the command line to
COMMANDS = sorted(path.stem.partition("-")[2] for path in HELP.glob("harness-*.txt"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *PAGES.rglob("*.md")])
_FENCE = re.compile(r"^(`{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_README_LINES = 180


def prose_of(path: Path) -> str:
    """Without the samples and without code, in which brackets mean something else."""
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("](", "]"), _FENCE.sub("", path.read_text()))


def slug(heading: str) -> str:
    """The anchor that both the site (python-markdown's toc) and GitHub give to a heading of plain words."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def anchors_of(path: Path) -> list[str]:
    return [slug(heading) for heading in re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", path.read_text()), re.MULTILINE)]


def broken_links(path: Path) -> Iterator[str]:
    for link in _LINK.findall(prose_of(path)):
        target, _, anchor = link.partition("#")
        if target.startswith(("https://", "http://")):
            continue
        file = path if not target else (path.parent / target).resolve()
        leaves_site = PAGES in path.parents and PAGES not in file.parents
        if not file.exists() or leaves_site or (anchor and anchor not in anchors_of(file)):
            yield link


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_leads_nowhere(path: Path) -> None:
    assert list(broken_links(path)) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_two_headings_of_a_page_have_one_anchor(path: Path) -> None:
    """The second one would be reached by another name on the site than on GitHub."""
    if path.name != "CHANGELOG.md":
        assert len(anchors_of(path)) == len(set(anchors_of(path)))


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n[a](#one) [b](#two) [c](none.md) [d](page.md#one)\n```\n[e](none.md)\n```\n`[f](none.md)`\n"
    )
    assert list(broken_links(page)) == ["#two", "none.md"]


@pytest.mark.parametrize(("path", "text"), list_pages().items(), ids=lambda value: getattr(value, "stem", ""))
def test_what_is_made_from_tables_is_current(path: Path, text: str) -> None:
    assert path.read_text() == text, "next: python -m docs.generate"


def test_every_page_is_in_the_navigation_and_every_command_has_a_page() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "docs" / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md"))
    assert {f"commands/{name}.md" for name in COMMANDS} <= set(listed)


def test_the_readme_is_short_and_names_every_command_that_there_is() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= _README_LINES
    assert not [name for name in COMMANDS if f"harness {name}" not in text]


def test_no_document_names_a_command_that_there_is_not() -> None:
    """Of what is typed: code in the prose, and what follows a prompt."""
    for path in DOCUMENTS:
        typed = re.findall(r"(?:`|^\$ )harness ([a-z]+)\b", path.read_text(), re.MULTILINE)
        assert set(typed) <= {*COMMANDS, "run"}, path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_page_tells_of_all_its_options_and_of_no_other(command: str) -> None:
    """Options that lead to other hosts may be told on their own page."""
    options = set(re.findall(r"(?<!\w)--[a-z][a-z-]+", (HELP / f"harness-{command}.txt").read_text())) - {"--help"}
    page = (PAGES / "commands" / f"{command}.md").read_text()
    told = set(re.findall(r"(?<!\w)--[a-z][a-z-]+", page + (PAGES / "commands" / "hosts.md").read_text()))
    assert options - told == set()
    rows = " ".join(re.findall(r"^\| (`-.*?) \|", page, re.MULTILINE))
    assert set(re.findall(r"(?<!\w)--[a-z][a-z-]+", rows)) - options == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_the_project_that_are_named_are_there(path: Path) -> None:
    """In code, from one of the folders that do not change. The changelog tells of what was."""
    named = re.findall(r"`((?:harness|native|tests|docs|probes|reproducers)/[\w./-]*)`", path.read_text())
    assert path.name == "CHANGELOG.md" or [name for name in named if not (ROOT / name).exists()] == []
