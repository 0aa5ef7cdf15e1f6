"""What would be if, as text: a row a question, what each costs below it."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, padded
from torchvet.renderers.text import add_rest
from torchvet.renderers.wording import limit, seconds, size

_STEP, _TIME = 22, 12


def whatif_page(report: Report, color: bool = False, width: int = 100) -> str:
    """The report of `torchvet whatif` for a person at a terminal."""
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
            page.heading("What is said")
            for line in facts["remarks"]:
                page.paragraph(line, indent=2, hang=2, most=3)
    add_rest(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """How it stands, in one line."""
    facts = report.facts.get("whatif")
    if facts is None:
        reason = report.not_checked[0].reason if report.not_checked else "nothing was recorded"
        return f"Could not judge: {reason}"
    now, known = facts["answers"][0], facts["memory_limit"]
    of = f" of {limit(known['bytes'])} ({known['source']})" if known["bytes"] else ""
    grows = f"{size(facts['bytes_per_step'])} more at every step" if facts["bytes_per_step"] else "nothing grows"
    end = "it fits" if now["known"] and now["first"] is None else f"out of memory at step {dies(now)}"
    return f"A step comes to {size(facts['base_bytes'])}{of}, {grows}: {end if now['known'] else 'no limit is known'}."


def dies(row: dict[str, Any]) -> str:
    """The step, or the bounds of it."""
    if not row["known"]:
        return "unknown"
    first, last = row["first"], row["last"]
    if first == last:
        return "never" if first is None else f"{first:,}"
    low, high = ("never" if n is None else f"{n:,}" for n in (first, last))
    return f"{low} to {high}"
