"""Kept output becomes the lines a person saw, with the time of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.evidence.text.transcript import clean_for_terminal, part_from_text, read_transcript

SECOND = 1_000_000_000


def keep(directory: Path, name: str, data: bytes, marks: list[tuple[int, int]]) -> None:
    (directory / name).write_bytes(data)
    (directory / f"{name}.times").write_text("".join(f"{offset} {time}\n" for offset, time in marks))


def test_a_redrawn_line_shows_its_last_state_only(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"a\n 10%\r 50%\r100%\nepoch 1 done\n 22%\r 23%", [(0, 0)])
    part = read_transcript(tmp_path, "stdout", 0).parts[0]
    assert part.lines == ("a", "100%", "epoch 1 done", " 23%")
    assert part.redrawn == {1, 3}
    assert part.unfinished


def test_windows_line_ends_are_not_redrawing() -> None:
    part = part_from_text("x", "one\r\ntwo\r\n")
    assert part.lines == ("one", "two")
    assert not part.redrawn


def test_a_message_behind_a_progress_bar_stays_whole() -> None:
    part = part_from_text("x", "\r 41%\r 42% 472/1122OMP: Error #15: Initializing\n")
    assert part.lines == (" 42% 472/1122OMP: Error #15: Initializing",)


def test_each_line_has_the_time_its_end_arrived(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"first\nsecond\nthird\n", [(0, 1 * SECOND), (6, 3 * SECOND), (13, 7 * SECOND)])
    part = read_transcript(tmp_path, "stdout", started_ns=1 * SECOND).parts[0]
    assert part.times_s == (0.0, 2.0, 6.0)


def test_offsets_of_a_rotated_file_count_from_the_start_of_the_channel(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"head\n", [(0, 0)])
    keep(tmp_path, "stdout.tail", b"x\ny\n", [(1000, 5 * SECOND), (1002, 6 * SECOND)])
    head, tail = read_transcript(tmp_path, "stdout", 0).parts
    assert (head.file, tail.file) == ("stdout.log", "stdout.tail")
    assert tail.times_s == (5.0, 6.0)


def test_a_torn_mark_of_a_killed_relay_is_left_out(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"x\n", [(0, SECOND)])
    with (tmp_path / "stdout.log.times").open("a") as times:
        times.write("17 99")
    assert read_transcript(tmp_path, "stdout", 0).parts[0].times_s == (1.0,)


def test_control_characters_and_escapes_never_reach_our_terminal() -> None:
    assert clean_for_terminal("\x1b[31mred\x1b[0m\x07\x00 \x1b]0;title\x07end\x9b") == "red end"


def test_invalid_utf8_and_nul_are_survived(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"\xff\xfe\0ok\n", [(0, 0)])
    assert read_transcript(tmp_path, "stdout", 0).parts[0].lines[0].endswith("ok")


def test_no_output_is_no_line(tmp_path: Path) -> None:
    keep(tmp_path, "stdout.log", b"", [])
    assert read_transcript(tmp_path, "stdout", 0).parts[0].lines == ()


UNSEEN = """
202a 202b 202c 202d 202e 2066 2067 2068 2069 200e 200f 061c 200b 200c 200d 2060 feff ad 2028 2029 e0001 e0041 e007f
34f 115f 1160 17b4 17b5 180b 180c 180d 180e 180f 206f 3164 fe00 fe0e fe0f ffa0 fff8 fffb 1bca0 1d173 e0100 e01ef e0fff
"""


@pytest.mark.parametrize("number", UNSEEN.split())
def test_what_deceives_a_reader_does_not_reach_the_terminal(number: str) -> None:
    """Directions of writing (CVE-2021-42574), characters without width, line ends that are no newline, tags."""
    assert clean_for_terminal(f"rm {chr(int(number, 16))}-rf") == "rm -rf"
    assert part_from_text("log", f"a{chr(int(number, 16))}b").lines == ("ab",)


def test_text_of_every_script_stays() -> None:
    for text in ("Größe ≥ 3 µs", "שלום", "训练 完成", "обучение", "✓ 🚀", "ᠮᠣᠩᠭᠣᠯ", "ﷺ ︐ ￼ �"):
        assert clean_for_terminal(text) == text
