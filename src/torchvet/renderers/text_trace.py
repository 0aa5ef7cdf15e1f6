"""A report on profiler traces as text: the verdict, where a step goes, then the findings. Readable in ten seconds."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, padded
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.verdict import verdict
from torchvet.renderers.wording import count, percent, printable, seconds, size

BAR, NAMES, COSTS, RANKS = 30, 34, 4, 16
LEAST = 0.005
"""Smaller shares of the step have no line."""

_IDLE = {
    "input": "idle: waiting for the loader",
    "synchronisation": "idle: after the host synchronized",
    "launch": "idle: waiting for launches",
    "host": "idle: Python does other work",
    "collector": "idle: garbage collector",
    "compile": "idle: torch.compile",
    "allocator": "idle: allocating memory",
    "device": "idle: between queued work",
    "profiler": "idle: the profiler itself",
}


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
    step, gpu = facts["step"], facts.get("gpu")
    rank = f"Rank {facts['rank']}: a" if facts.get("rank") is not None else "A"
    by = "" if step["found_by"] == "ProfilerStep" else f" (found by {step['found_by']})"
    busy = ""
    if gpu:
        name = f" ({facts['devices'][0]})" if facts.get("devices") else ""
        busy = f"; device {gpu['device']}{name} is busy {gpu['busy_share'] * 100:.1f} % of its time"
    page.blank()
    steps = count(facts.get("steps") or 0, "step")
    page.paragraph(f"{rank} step takes {seconds(step['seconds'])}, over {steps}{by}{busy}", most=2)
    for name, spent in _parts(facts):
        share = spent / step["seconds"] if step["seconds"] else 0.0
        if share >= LEAST:
            bar = "#" * max(1, round(share * BAR))
            page.verbatim(f"{padded(name, NAMES)} {seconds(spent):>8} {percent(share):>6}  {bar}", indent=2)


def _parts(facts: dict[str, Any]) -> list[tuple[str, float]]:
    """The step's time on the device by what it did, or on the host by phase where there is no device."""
    gpu = facts.get("gpu")
    if not gpu:
        whole = facts["step"]["seconds"]
        return sorted(((f"host: {n}", s * whole) for n, s in facts["phases"].items()), key=lambda p: -p[1])
    named = (("computing", "compute"), ("communication only", "communication"), ("copies only", "copies"))
    parts = [(name, gpu[key]) for name, key in named]
    return parts + sorted(((_IDLE.get(n, f"idle: {n}"), s) for n, s in gpu["idle"].items()), key=lambda p: -p[1])


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
    least = LEAST * (facts.get("step") or {}).get("seconds", 0.0)
    for number, cost in enumerate(c for c in facts.get("costs", ())[:COSTS] if c["seconds"] >= least):
        seen.labelled("costs" if not number else "", _cost(cost), 2)
    if facts.get("precision"):
        used = ", ".join(f"{name} {percent(share)}" for name, share in facts["precision"].items())
        seen.labelled("arithmetic", f"{used} of the time in matrix products and convolutions", 2)
    for item in facts.get("misaligned", ())[:1]:
        sizes = f"{item['sizes']} in half precision: sizes that are not multiples of 8"
        seen.labelled("alignment", f"{sizes}; {seconds(item['seconds'])} per step", 2)
    for item in facts.get("memory", ())[:2]:
        seen.labelled("memory", _memory(item), 2)
    page.section("What was seen", seen)


def _cost(cost: dict[str, Any]) -> str:
    where = f" in {printable(cost['function'])}" if cost.get("function") else ""
    where = where or (f" in the {cost['phase']} phase" if cost.get("phase") else "")
    moved = f", {size(cost['bytes'])}" if cost["bytes"] else ""
    return f"{seconds(cost['seconds'])} per step: {cost['what']}{where}, {count(cost['count'], 'time')}{moved}"


def _memory(item: dict[str, Any]) -> str:
    growth = item.get("growth_per_step")
    reserved = f", {size(item['reserved'])} reserved" if item["reserved"] else ""
    rises = f"; rises by {size(growth)} at every step" if growth else ""
    return f"{item['device']}: {size(item['peak'])} at most{reserved}{rises}"
