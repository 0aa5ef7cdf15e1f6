"""Where a line of one text is in another: edits move what stands below them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache


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
