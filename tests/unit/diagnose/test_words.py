"""Lists and texts that are cut: only where an item ends."""

from __future__ import annotations

from harness.diagnose.words import cut_items, cut_words, name_some


def test_items_stay_whole_and_the_rest_is_counted() -> None:
    ports = ", ".join(f"127.0.0.1:{port}" for port in range(46200, 46220))
    cut = cut_items(f"waits for {ports}", 60)
    shown, _, more = cut.partition(" … and ")
    assert all(len(item.rpartition(":")[2]) == 5 for item in shown.split(", ")) and more == "17 more"
    assert cut_items(ports, 1000) == ports


def test_parts_that_are_lists_themselves_stay_together() -> None:
    text = "fd 3: TCP a, at its other end process 7; fd 4: TCP b, at its other end process 8; fd 5: TCP c"
    assert cut_items(text, 70) == "fd 3: TCP a, at its other end process 7 … and 2 more"


def test_one_item_that_is_too_long_is_told_whole() -> None:
    assert cut_items("/a/very/long/path", 5) == "/a/very/long/path"


def test_words_stay_whole_and_a_cut_shows() -> None:
    assert cut_words("one two three", 8) == "one two …"
    assert cut_words("one two", 7) == "one two"
    assert cut_words("abcdefgh", 4) == "abcd…"


def test_some_names_and_how_many_more() -> None:
    assert name_some(["a", "b", "c"], 3) == "a, b, c"
    assert name_some(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"
