"""A dry run as text: where the peak comes from, and what other batch sizes take."""

from __future__ import annotations

from typing import Any

from torchvet.renderers.page import Page
from torchvet.renderers.sections.amounts import add_amounts, line_name
from torchvet.renderers.wording import count, size

MODULES, LINES = 6, 6


def add_dry(page: Page, dry: dict[str, Any], total: int) -> None:
    """The rows below the peak of `total` bytes."""
    modules = [(m["name"], m["bytes"], count(m["blocks"], "block")) for m in dry["modules"][:MODULES]]
    add_amounts(page, modules, total, "by module")
    lines = [(line_name(r), r["bytes"], r["category"]) for r in dry["lines"] if r["path"]]
    add_amounts(page, lines[:LINES], total, "by line")
    rows = [(f"batch {b['batch']:,}", b["reserved"], "fits" if b["fits"] else "does not fit") for b in dry["batches"]]
    if len(rows) > 1:
        room = dry["card"]["room"]
        page.labelled("reserved", f"by a step, of {size(room)} on the card", 1)
        add_amounts(page, rows, room)
