"""A dry run as text: where the peak comes from, and what other batch sizes take."""

from __future__ import annotations

import re
from typing import Any

from torchvet.renderers.page import LABEL, Page, padded
from torchvet.renderers.wording import count, percent, printable, size

MODULES, LINES = 6, 6
_WIDEST = 44


def add_dry(page: Page, dry: dict[str, Any], total: int) -> None:
    """The rows below the peak of `total` bytes."""
    modules = [(m["name"], m["bytes"], count(m["blocks"], "block")) for m in dry["modules"][:MODULES]]
    _add_rows(page, "by module", modules, total)
    lines = [(_line(r), r["bytes"], r["category"]) for r in dry["lines"] if r["path"]]
    _add_rows(page, "by line", lines[:LINES], total)
    rows = [(f"batch {b['batch']:,}", b["reserved"], "fits" if b["fits"] else "does not fit") for b in dry["batches"]]
    if len(rows) > 1:
        page.labelled("reserved", f"by a step, of {size(dry['card']['room'])} on the card", 1)
        _rows(page, rows, dry["card"]["room"])


def _add_rows(page: Page, label: str, rows: list[tuple[str, int, str]], total: int) -> None:
    if rows:
        page.labelled(label, "", 1)
        _rows(page, rows, total)


def _rows(page: Page, rows: list[tuple[str, int, str]], total: int) -> None:
    widest = min(max(len(printable(name)) for name, _, _ in rows), _WIDEST, page.width - LABEL - 22)
    for name, held, detail in rows:
        row = f"{padded(name, widest)}  {size(held):>11}  {percent(held / total):>5}"
        rest = page.width - LABEL - len(row) - 2
        page.verbatim(row + (f"  {detail[:rest]}" if detail and rest > 8 else ""), indent=LABEL)


def _line(row: dict[str, Any]) -> str:
    name = re.split(r"[/\\]", row["path"])[-1]
    return f"{name}:{row['line']} {row['function']}{' (backward)' if row['backward'] else ''}"
