"""Finds a line of one text in an edited version of it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

_ALIKE = 0.5
"""The ratio of common characters from which two lines count as one line that was changed."""
_COMPARED = 2500
"""The most pairs of lines compared: each comparison is itself a diff."""


@lru_cache(maxsize=32)
def _blocks(before: tuple[str, ...], after: tuple[str, ...]) -> Sequence[tuple[str, int, int, int, int]]:
    # Without `autojunk` a line that is frequent in a long file (`)`, an empty one) would count as noise.
    return difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()


def lines_after(before: str, after: str, line: int) -> range:
    """The lines, from 1, that a line became; empty if it was deleted."""
    if before == after:
        return range(line, line + 1)
    for kind, start, end, new_start, new_end in _blocks(tuple(before.splitlines()), tuple(after.splitlines())):
        if start < line <= end:
            if kind == "equal":
                moved = new_start + line - start
                return range(moved, moved + 1)
            # All of what replaced its block: which of them it became is not told here.
            return range(new_start + 1, new_end + 1)
    return range(0)


def became(before: str, after: str, line: int) -> set[int]:
    """The lines, from 1, that now do the work of a line: the most similar one and new ones beside it.

    Indentation does not count.
    """
    # A fix that wraps a line in a `with` block only indents it, and leaves its cost where it is.
    old, new = ([one.strip() for one in text.splitlines()] for text in (before, after))
    for kind, start, end, new_start, new_end in _blocks(tuple(old), tuple(new)):
        if start < line <= end:
            if kind == "equal":
                return {new_start + line - start}
            # Within a block that differs; lines outside of it are paired already.
            pairs = _pairs(old[start:end], new[new_start:new_end])
            fresh = set(range(new_end - new_start)) - set(pairs.values())
            own = {pairs[line - start - 1]} if line - start - 1 in pairs else set()
            return {new_start + 1 + n for n in fresh | own}
    return set()


def _pairs(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Similar lines, by index, each used once, the most similar first; empty for blocks too long to compare."""
    if len(old) * len(new) > _COMPARED:
        return {}
    ratios = []
    for i, a in enumerate(old):
        ratios += [(difflib.SequenceMatcher(None, a, b, autojunk=False).ratio(), i, j) for j, b in enumerate(new)]
    found: dict[int, int] = {}
    # Greedy: the best pair first.
    for ratio, i, j in sorted(ratios, reverse=True):
        if ratio >= _ALIKE and i not in found and j not in found.values():
            found[i] = j
    return found
