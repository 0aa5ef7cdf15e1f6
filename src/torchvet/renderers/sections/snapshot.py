"""A memory snapshot as text: a device on half a screen.

What was in use at the peak, by category and by line; what grows; what lies free.
"""

from __future__ import annotations

from typing import Any

from torchvet.renderers.page import Page
from torchvet.renderers.sections.amounts import add_amounts, line_name
from torchvet.renderers.wording import count, limit, percent, seconds, size

CATEGORIES, LINES, MODULES = 8, 6, 4
_FREE = {
    "rounding": "rounding",
    "slack": "not worth splitting off",
    "whole_free": "free in whole segments",
    "split_free": "free in pieces",
}
"""The parts of what is reserved and not asked for, with their words."""


def add_snapshot(page: Page, facts: dict[str, Any], several: bool) -> None:
    """One device's facts. `several`: there are other devices, so name this one."""
    if several:
        page.labelled("snapshot", f"{facts['path']}, device {facts['device']}", 2)
    if recorded := _recorded(facts):
        page.labelled("recorded", recorded, 2)
    failure = facts.get("failure")
    if failure:
        page.labelled("failed", _failure(failure), 3)
        _add_moment(page, "in use then", failure)
    else:
        of = f" of {limit(facts['limit'])}" if facts.get("limit") else ""
        _add_moment(page, "peak" if facts["events"] else "in use", facts["peak"], of)
    if growth := _growth(facts.get("growth")):
        page.labelled("growth", growth, 2)
    page.labelled("reserved", _reserved(facts["at_end"], facts["in_use"]), 3)
    if free := _fragmentation(facts["fragmentation"], bool(failure)):
        page.labelled("in pieces", free, 3)


def _recorded(facts: dict[str, Any]) -> str:
    if not facts["events"]:
        return "no history: only the state when the snapshot was taken"
    parts = [count(facts["events"], "event")]
    parts += [f"in {seconds(facts['seconds'])}"] if facts.get("seconds") else []
    steps = facts["steps"]
    found = f", {count(steps['count'], 'step')} (by {steps['told_by']})" if steps["count"] else ""
    return " ".join(parts) + found


def _add_moment(page: Page, label: str, moment: dict[str, Any], of: str = "") -> None:
    total = moment["bytes"]
    page.labelled(label, size(total) + of, 1)
    if not total:
        return
    rows = [(name, held, "") for name, held in list(moment["categories"].items())[:CATEGORIES] if held]
    add_amounts(page, rows, total)
    lines = [(line_name(r), r["bytes"], _detail(r)) for r in moment["lines"] if r["path"]][:LINES]
    add_amounts(page, lines, total, "by line")
    modules = list(moment["modules"].items())[:MODULES]
    if len(modules) > 1:
        page.labelled("modules at", ", ".join(f"{name} {size(held)}" for name, held in modules), 2)


def _detail(row: dict[str, Any]) -> str:
    operator = f", {row['operator']}" if row["operator"] else ""
    return f"{row['category']}, {count(row['blocks'], 'block')}{operator}"


def _failure(failure: dict[str, Any]) -> str:
    others = f" ({count(failure['failures'])} such errors)" if failure["failures"] > 1 else ""
    return (
        f"{size(failure['requested'])} requested, {size(failure['driver_free'])} of {limit(failure['capacity'])} "
        f"free on the device; by {failure['reason']}{others}"
    )


def _growth(growth: dict[str, Any] | None) -> str:
    if growth is None:
        return ""
    rate, explained = growth["bytes_per_step"], growth["explained_bytes_per_step"]
    if abs(rate) < 1 and not explained:
        return f"none over {count(growth['steps'], 'step')}: what a step allocates is freed again"
    if not growth["lines"]:
        return f"{size(rate)} per step, from no line that all steps share"
    return f"{size(rate)} per step, {size(explained)} of it from {count(len(growth['lines']), 'line')} of code"


def _reserved(parts: dict[str, int], in_use: int) -> str:
    free = "".join(f", {size(parts[part])} {words}" for part, words in _FREE.items() if parts[part])
    return f"{size(parts['reserved'])} at the end: {size(parts['requested'])} requested{free}"


def _fragmentation(free: dict[str, Any], failed: bool) -> str:
    if not free["split_free"] or free["share"] < 0.01:
        return ""
    when = "when memory ran out" if failed else "at the peak"
    return (
        f"{size(free['split_free'])} ({percent(free['share'])} of what was reserved) free in pieces {when}, in "
        f"{count(free['split_segments'], 'segment')}; the largest piece {size(free['largest_free'])}"
    )
