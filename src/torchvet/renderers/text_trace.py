"""A report on profiler traces as text: the verdict, where a step goes, then the findings. Readable in ten seconds."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.formatting import IDLE_WORDS
from torchvet.renderers.page import Page, padded
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.verdict import verdict
from torchvet.renderers.wording import count, percent, printable, seconds, size

BAR, NAMES, COSTS, RANKS = 30, 34, 4, 16
LEAST = 0.005
"""Smaller shares of the step have no line."""
UNEVEN = 0.02
"""The part by which the mean of the steps must differ from their median to be said as well."""


def trace_page(report: Report, color: bool, width: int) -> str:
    """The whole page, `width` columns wide."""
    page = Page(width)
    page.paragraph(verdict(report), "bold", most=3)
    facts = report.facts
    if facts.get("step"):
        _add_step(page, facts)
    if facts.get("ranks"):
        _add_ranks(page, facts["ranks"])
    add_findings(page, report)
    _add_details(page, facts)
    add_rest(page, report)
    return page.text(color)


def _add_step(page: Page, facts: dict[str, Any]) -> None:
    step = facts["step"]
    page.blank()
    page.paragraph(_step(facts) + _busy(facts), most=3)
    for name, spent in _parts(facts):
        share = spent / step["seconds"] if step["seconds"] else 0.0
        if share >= LEAST:
            bar = "#" * max(1, round(share * BAR))
            page.verbatim(f"{padded(name, NAMES)} {seconds(spent):>8} {percent(share):>6}  {bar}", indent=2)


def _step(facts: dict[str, Any]) -> str:
    """How long a step takes and over how many that holds, or the whole trace."""
    step = facts["step"]
    rank = f"Rank {facts['rank']}: " if facts.get("rank") is not None else ""
    if not step["known"]:
        whole = f"the trace lasts {seconds(step['seconds'])}; nothing marks its steps"
        return rank + whole if rank else whole.capitalize()
    by = "" if step["found_by"] == "ProfilerStep" else f" (found by {step['found_by']})"
    of = f"{step['steady']} of " if step["apart"] else ""
    begins = f"{rank}a" if rank else "A"
    over = f", over {of}{count(facts.get('steps') or 0, 'step')}{by}"
    return f"{begins} step takes {seconds(step['median'])}{_spread(step)}{over}{_apart(step['apart'])}"


def _spread(step: dict[str, Any]) -> str:
    """From the shortest to the longest, and the mean where it is another than the median."""
    low, high = seconds(step["low"]), seconds(step["high"])
    if low == high:
        return ""
    uneven = abs(step["seconds"] - step["median"]) > UNEVEN * step["median"]
    mean = f", mean {seconds(step['seconds'])}" if uneven else ""
    return f" ({low} to {high}{mean})"


def _apart(steps: list[dict[str, Any]]) -> str:
    """`; first step 5.3 s, apart`, and the like."""
    parts = []
    first = [s for s in steps if s["why"] == "first"]
    if first:
        times = ", ".join(seconds(s["seconds"]) for s in first[:3]) + (", ..." if len(first) > 3 else "")
        parts.append(f"first {'step' if len(first) == 1 else count(len(first), 'step')} {times}, apart")
    for step in steps:
        if step["why"] == "long":
            most = f", most of it {step['most']}" if step["most"] else ""
            parts.append(f"one step took {seconds(step['seconds'])}: step {step['number']}{most}, apart")
        elif step["why"] == "last":
            parts.append("an empty last step apart")
    return "".join(f"; {part}" for part in parts)


def _busy(facts: dict[str, Any]) -> str:
    gpu = facts.get("gpu")
    if not gpu:
        return ""
    name = f" ({facts['devices'][0]})" if facts.get("devices") else ""
    return f"; device {gpu['device']}{name} is busy {gpu['busy_share'] * 100:.1f} % of that time"


def _parts(facts: dict[str, Any]) -> list[tuple[str, float]]:
    """The step's time on the device by what it did, or on the host by phase where there is no device."""
    gpu = facts.get("gpu")
    if not gpu:
        whole = facts["step"]["seconds"]
        return sorted(((f"host: {n}", s * whole) for n, s in facts["phases"].items()), key=lambda p: -p[1])
    named = (("computing", "compute"), ("communication only", "communication"), ("copies only", "copies"))
    parts = [(name, gpu[key]) for name, key in named]
    return parts + sorted(((f"idle: {IDLE_WORDS.get(n, n)}", s) for n, s in gpu["idle"].items()), key=lambda p: -p[1])


def _add_ranks(page: Page, ranks: list[dict[str, Any]]) -> None:
    """A line for each rank; only the slowest, slowest first, if there are too many."""
    page.blank()
    page.verbatim("rank     step    busy  computing  in collectives      idle  peak memory", "bold", indent=2)
    shown = ranks if len(ranks) <= RANKS else sorted(ranks, key=lambda r: -(r["step"] or 0.0))[:RANKS]
    for line in shown:
        cells = [
            f"{line['rank'] if line['rank'] is not None else '?':>4}",
            f"{_time(line['step']):>8}",
            f"{percent(line['busy_share']) if line['busy_share'] is not None else '-':>7}",
            f"{_time(line['compute']):>10}",
            f"{_time(line['collectives']):>15}",
            f"{_time(line['idle']):>9}",
            f"{size(line['peak']) if line['peak'] else '-':>12}",
        ]
        page.verbatim(" ".join(cells), indent=2)
    page.more(len(ranks) - RANKS, " ranks with shorter steps")


def _time(value: float | None) -> str:
    return seconds(value) if value is not None else "-"


def _add_details(page: Page, facts: dict[str, Any]) -> None:
    seen = page.part()
    if facts.get("gpu") and facts.get("phases"):
        shares = sorted(facts["phases"].items(), key=lambda p: -p[1])
        seen.labelled("host", ", ".join(f"{name} {percent(share)}" for name, share in shares), 2)
    step = facts.get("step") or {"seconds": 0.0, "known": False}
    least, per_step = LEAST * step["seconds"], " per step" if step["known"] else ""
    for number, cost in enumerate(c for c in facts.get("costs", ())[:COSTS] if c["seconds"] >= least):
        seen.labelled("costs" if not number else "", _cost(cost, per_step), 2)
    if facts.get("precision"):
        used = ", ".join(f"{name} {percent(share)}" for name, share in facts["precision"].items())
        seen.labelled("arithmetic", f"{used} of the time in matrix products and convolutions", 2)
    for item in facts.get("misaligned", ())[:1]:
        sizes = f"{item['sizes']} in half precision: sizes that are not multiples of 8"
        seen.labelled("alignment", f"{sizes}; {seconds(item['seconds'])}{per_step}", 2)
    for item in facts.get("memory", ())[:2]:
        seen.labelled("memory", _memory(item), 2)
    page.section("What was seen", seen)


def _cost(cost: dict[str, Any], per_step: str) -> str:
    where = f" in {printable(cost['function'])}" if cost.get("function") else ""
    where = where or (f" in the {cost['phase']} phase" if cost.get("phase") else "")
    moved = f", {size(cost['bytes'])}" if cost["bytes"] else ""
    return f"{seconds(cost['seconds'])}{per_step}: {cost['what']}{where}, {count(cost['count'], 'time')}{moved}"


def _memory(item: dict[str, Any]) -> str:
    growth = item.get("growth_per_step")
    reserved = f", {size(item['reserved'])} reserved" if item["reserved"] else ""
    rises = f"; rises by {size(growth)} at every step" if growth else ""
    return f"{item['device']}: {size(item['peak'])} at most{reserved}{rises}"
