"""A report on thousands of files as text: what they have in common, and which of them stand out."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from torchvet.finding import Report
from torchvet.formatting import FILE_KINDS, ms
from torchvet.renderers.page import LABEL, Page
from torchvet.renderers.places import shown_path
from torchvet.renderers.sections.ranks import stands_out
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.verdict import verdict
from torchvet.renderers.wording import count, percent, size

OUTLIERS = 8
"""Files that stand out that are shown; JSON has all of them."""
_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("seconds_per_step", "a step takes", ms),
    ("busy_share", "device busy", percent),
    ("peak_bytes", "peak", size),
    ("reserved_bytes", "reserved", size),
    ("bytes_per_step", "growth per step", size),
    ("heap_per_step", "heap's growth per step", size),
)


def fleet_page(report: Report, color: bool, width: int) -> str:
    """The whole page, `width` columns wide."""
    page = Page(width)
    page.paragraph(verdict(report), "bold", most=3)
    add_findings(page, _without_ranks(report))
    seen = page.part()
    for kind, word in FILE_KINDS.items():
        _add_kind(seen, f"{word}s", [row for row in report.facts["rows"] if row["kind"] == kind])
    _add_outliers(seen, report.facts["outliers"])
    page.section("What was seen", seen)
    add_rest(page, report)
    return page.text(color)


def _without_ranks(report: Report) -> Report:
    """Each finding says in a line of its own where it was seen: a thousand ranks fit into no heading."""
    plain = [msgspec.structs.replace(f, rank=None, ranks=[]) if f.ranks else f for f in report.findings]
    return msgspec.structs.replace(report, findings=plain)


def _add_kind(page: Page, label: str, rows: list[dict[str, Any]]) -> None:
    """The median and the range of each column."""
    if not rows:
        return
    page.labelled(label, count(len(rows)), 1)
    for column, name, write in _COLUMNS:
        values = [row[column] for row in rows if row[column] is not None]
        if values:
            low, high = write(min(values)), write(max(values))
            spread = "" if low == high else f" ({low} to {high})"
            page.paragraph(f"{name} {write(median(values))}{spread}", indent=LABEL, hang=2, most=2)


def _add_outliers(page: Page, outliers: list[dict[str, Any]]) -> None:
    for number, one in enumerate(outliers[:OUTLIERS]):
        text = stands_out(one, shown_path(one["path"]), f"{FILE_KINDS[one['kind']]}s")
        page.labelled("stand out" if not number else "", text, 2)
    page.more(len(outliers) - OUTLIERS, " that stand out")
