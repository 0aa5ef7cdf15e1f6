"""A memory snapshot as text: a device on half a screen.

What was in use at the peak, by category and by line; what grows; what lies free.
"""

from __future__ import annotations

import re
from typing import Any

from torchvet.renderers.page import LABEL, Page, padded
from torchvet.renderers.wording import count, limit, percent, printable, seconds, size

CATEGORIES, LINES, MODULES = 8, 6, 4
_WIDEST = 44


def add_snapshot(page: Page, facts: dict[str, Any], several: bool) -> None:
    """One device's facts. `several` says whether others follow, so that each must say whose it is."""
    if several:
        page.labelled("snapshot", f"{facts['path']}, device {facts['device']}", 2)
    if recorded := _recorded(facts):
        page.labelled("recorded", recorded, 2)
    failure = facts.get("failure")
    if failure:
        page.labelled("failed", _failure(failure), 3)
        _add_moment(page, "in use then", failure)
    else:
        _add_moment(page, "peak", facts["peak"])
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
    told = f", {count(steps['count'], 'step')} (by {steps['told_by']})" if steps["count"] else ""
    return " ".join(parts) + told


def _add_moment(page: Page, label: str, moment: dict[str, Any]) -> None:
    total = moment["bytes"]
    page.labelled(label, size(total), 1)
    if not total:
        return
    rows = [(name, held, "") for name, held in list(moment["categories"].items())[:CATEGORIES] if held]
    _add_rows(page, rows, total)
    lines = [(_line(r), r["bytes"], _detail(r)) for r in moment["lines"] if r["path"]][:LINES]
    if lines:
        page.labelled("by line", "", 1)
        _add_rows(page, lines, total)
    modules = list(moment["modules"].items())[:MODULES]
    if len(modules) > 1:
        page.labelled("modules at", ", ".join(f"{name} {size(held)}" for name, held in modules), 2)


def _add_rows(page: Page, rows: list[tuple[str, int, str]], total: int) -> None:
    widest = min(max((len(printable(name)) for name, _, _ in rows), default=0), _WIDEST, page.width - LABEL - 22)
    for name, held, detail in rows:
        row = f"{padded(name, widest)}  {size(held):>11}  {percent(held / total):>5}"
        rest = page.width - LABEL - len(row) - 2
        page.verbatim(row + (f"  {detail[:rest]}" if detail and rest > 8 else ""), indent=LABEL)


def _line(row: dict[str, Any]) -> str:
    name = re.split(r"[/\\]", row["path"])[-1]
    return f"{name}:{row['line']} {row['function']}{' (backward)' if row['backward'] else ''}"


def _detail(row: dict[str, Any]) -> str:
    operator = f", {row['operator']}" if row["operator"] else ""
    return f"{row['category']}, {count(row['blocks'], 'block')}{operator}"


def _failure(failure: dict[str, Any]) -> str:
    return (
        f"{size(failure['requested'])} asked for, {size(failure['driver_free'])} left at the driver of "
        f"{limit(failure['capacity'])}; by {failure['reason']}"
        + (f" ({count(failure['failures'])} such errors)" if failure["failures"] > 1 else "")
    )


def _growth(growth: dict[str, Any] | None) -> str:
    if growth is None:
        return ""
    rate, explained = growth["bytes_per_step"], growth["explained_bytes_per_step"]
    if abs(rate) < 1 and not explained:
        return f"none over {count(growth['steps'], 'step')}: what a step allocates is freed again"
    lines = growth["lines"]
    by = (
        f", {size(explained)} of it from {count(len(lines), 'line')} of code"
        if lines
        else ", from no line that all steps share"
    )
    return f"{size(rate)} per step{by}"


def _reserved(parts: dict[str, int], in_use: int) -> str:
    text = f"{size(parts['reserved'])} at the end: {size(parts['requested'])} asked for"
    for name, words in (
        ("rounding", "rounding"), ("slack", "not worth splitting off"), ("whole_free", "free in whole segments"),
        ("split_free", "free in pieces"),
    ):  # fmt: skip
        text += f", {size(parts[name])} {words}" if parts[name] else ""
    return text


def _fragmentation(free: dict[str, Any], failed: bool) -> str:
    if not free["split_free"] or free["share"] < 0.01:
        return ""
    when = "when memory ran out" if failed else "at the peak"
    return (
        f"{size(free['split_free'])} ({percent(free['share'])} of what was reserved) free in pieces {when}, in "
        f"{count(free['split_segments'], 'segment')}; the largest piece {size(free['largest_free'])}"
    )
