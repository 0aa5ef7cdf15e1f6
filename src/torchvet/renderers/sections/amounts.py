"""Rows of amounts: a name, its bytes, its share of a total and a detail, in columns."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import cell_len

from torchvet.renderers.page import LABEL, Page, crop, padded
from torchvet.renderers.wording import percent, printable, size

_WIDEST_NAME = 44
_AMOUNTS = 22
"""Columns that the size and the share take, the gaps before them included."""
_LEAST_DETAIL = 8

Row = tuple[str, int, str]
"""A name, bytes, and a detail, which may be empty."""


def add_amounts(page: Page, rows: list[Row], total: int, label: str = "") -> None:
    """The rows, each with its share of `total` bytes, below a label if one is given; nothing without rows."""
    if label and rows:
        page.labelled(label, "", 1)
    names = max((cell_len(printable(name)) for name, _, _ in rows), default=0)
    widest = names if page.whole else min(names, _WIDEST_NAME, page.width - LABEL - _AMOUNTS)
    for name, held, detail in rows:
        row = f"{padded(name, widest)}  {size(held):>11}  {percent(held / total):>5}"
        room = page.room(LABEL + cell_len(row) + 2)
        page.verbatim(row + (f"  {crop(detail, room)}" if detail and room > _LEAST_DETAIL else ""), indent=LABEL)


def line_name(row: dict[str, Any]) -> str:
    """A line of code as `file.py:12 function`, the file without its folders."""
    name = re.split(r"[/\\]", row["path"])[-1]
    return f"{name}:{row['line']} {row['function']}{' (backward)' if row['backward'] else ''}"
