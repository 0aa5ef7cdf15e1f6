"""Where a line of one text is in another: edits move what stands below them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache

_ALIKE = 0.5
"""From this ratio of common characters on two lines are one line, changed."""
_COMPARED = 2500
"""Pairs of lines."""


@lru_cache(maxsize=32)
def _blocks(before: str, after: str) -> Sequence[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return matcher.get_opcodes()


def lines_after(before: str, after: str, line: int) -> range:
    """The lines of the text after that a line of the text before became, from 1; empty where it is gone."""
    if before == after:
        return range(line, line + 1)
    for kind, start, end, new_start, new_end in _blocks(before, after):
        if start < line <= end:
            if kind == "equal":
                moved = new_start + line - start
                return range(moved, moved + 1)
            return range(new_start + 1, new_end + 1)
    return range(0)


def became(before: str, after: str, line: int) -> set[int]:
    """The lines of the text after that do what a line of the text before did: that which is most like it among those
    in the place of its like, with those that are new there; indentation does not count."""
    old, new = ([one.strip() for one in text.splitlines()] for text in (before, after))
    for kind, start, end, new_start, new_end in _aligned(tuple(old), tuple(new)):
        if start < line <= end:
            if kind == "equal":
                return {new_start + line - start}
            pairs = _pairs(old[start:end], new[new_start:new_end])
            fresh = set(range(new_end - new_start)) - set(pairs.values())
            own = {pairs[line - start - 1]} if line - start - 1 in pairs else set()
            return {new_start + 1 + n for n in fresh | own}
    return set()


@lru_cache(maxsize=32)
def _aligned(old: tuple[str, ...], new: tuple[str, ...]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _pairs(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Lines that are much alike, each once, the most alike first; none in blocks too long to be compared."""
    if len(old) * len(new) > _COMPARED:
        return {}
    likeness = sorted(
        ((difflib.SequenceMatcher(None, a, b, autojunk=False).ratio(), i, j)
         for i, a in enumerate(old) for j, b in enumerate(new)), reverse=True,
    )  # fmt: skip
    found: dict[int, int] = {}
    for ratio, i, j in likeness:
        if ratio >= _ALIKE and i not in found and j not in found.values():
            found[i] = j
    return found
