"""What-if questions as text: a row for each, and below it what the change costs."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, padded
from torchvet.renderers.text import add_rest
from torchvet.renderers.verdict import could_not_judge
from torchvet.renderers.wording import limit, seconds, size

_STEP, _TIME = 22, 12


def whatif_page(report: Report, color: bool, width: int) -> str:
    """The page of `torchvet whatif`."""
    page = Page(width)
    page.paragraph(headline(report), "bold", most=4)
    facts = report.facts.get("whatif")
    if facts is not None:
        page.heading("What if")
        room = max(len(row["asked"]) for row in facts["answers"]) + 2
        page.verbatim(f"{padded('', room)} {padded('dies at step', _STEP)} {'after'}".rstrip(), indent=2)
        for row in facts["answers"]:
            after = seconds(row["seconds"]) if row["seconds"] is not None else ""
            line = f"{padded(row['asked'], room)} {padded(dies(row), _STEP)} {after}"
            page.verbatim(line.rstrip(), indent=2)
            page.paragraph(row["costs"], indent=6, hang=0, most=4)
        if facts["remarks"]:
            page.heading("Remarks")
            for line in facts["remarks"]:
                page.paragraph(line, indent=2, hang=2, most=3)
    add_rest(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """What a step takes now, by how much it grows and when memory ends, in one sentence."""
    facts = report.facts.get("whatif")
    if facts is None:
        return could_not_judge(report)
    now, known = facts["answers"][0], facts["memory_limit"]
    of = f" of {limit(known['bytes'])} ({known['source']})" if known["bytes"] else ""
    grows = f"{size(facts['bytes_per_step'])} more at every step" if facts["bytes_per_step"] else "nothing grows"
    end = "it fits" if now["first"] is None else f"out of memory at step {dies(now)}"
    return f"A step takes {size(facts['base_bytes'])}{of}, {grows}: {end if now['known'] else 'no limit is known'}."


def dies(row: dict[str, Any]) -> str:
    """The step at which memory ends, or its bounds."""
    if not row["known"]:
        return "unknown"
    first, last = row["first"], row["last"]
    if first == last:
        return "never" if first is None else f"{first:,}"
    low, high = ("never" if n is None else f"{n:,}" for n in (first, last))
    return f"{low} to {high}"
