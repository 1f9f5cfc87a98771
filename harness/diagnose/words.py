"""Lists and texts that are too long, cut where an item ends: half a port is another port, half a path another path."""

from __future__ import annotations

from collections.abc import Sequence


def name_some(names: Sequence[str], most: int) -> str:
    """ "a, b, c and 4 more" """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def cut_items(text: str, most: int) -> str:
    """As many whole items of a list as fit, at least one, and how many there are besides; "; " parts before ", "."""
    between = "; " if "; " in text else ", "
    items = text.split(between)
    kept = 1
    while kept < len(items) and len(between.join(items[: kept + 1])) <= most:
        kept += 1
    more = len(items) - kept
    return f"{between.join(items[:kept])} … and {more} more" if more else text


def cut_words(text: str, most: int) -> str:
    """Whole words, and a sign that there were more; one word that is longer loses its end, and shows it."""
    if len(text) <= most:
        return text
    whole = text[: most + 1].rpartition(" ")[0].rstrip()
    return f"{whole} …" if whole else f"{text[:most]}…"
