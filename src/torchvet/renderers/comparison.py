"""A comparison as text: what changed, by how much, and where."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page, add_not_checked, crop
from torchvet.renderers.wording import percent, printable, seconds, size

ROWS = 8
"""Names shown of each table; JSON has all of them."""
AMOUNT = 11


def comparison_page(report: Report, color: bool, width: int) -> str:
    """The verdict, then a table for each kind of amount that differs."""
    facts = report.facts["comparison"]
    page = Page(width)
    page.paragraph(headline(report), "bold", most=3)
    page.blank()
    page.labelled("before", str(report.subject["before"]), 2)
    page.labelled("after", str(report.subject["after"]), 2)
    for difference in facts["differences"]:
        _add(page, difference)
    same = [d["title"] for d in facts["differences"] if not d["rows"] and d["before"] == d["after"]]
    if same:
        page.blank()
        page.labelled("the same", ", ".join(same))
    add_not_checked(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """One sentence: nothing changed, or by how much the totals did."""
    facts = report.facts["comparison"]
    if report.verdict == "undetermined":
        return "Could not judge: no amount that the gate compares was measured on both sides"
    if facts["same"]:
        return "No difference in anything that was compared"
    parts = [_total(d) for d in facts["differences"] if d["before"] is not None and d["before"] != d["after"]]
    # One amount may have two tables: the peak by category and by line.
    totals = "; ".join(dict.fromkeys(parts)) or "The totals are the same; their parts differ"
    if facts["gate"] is None:
        return totals
    allowed = f"{facts['gate'] * 100:g} %"
    if facts["over"]:
        return f"Grew by more than the {allowed} that is allowed: {', '.join(facts['over'])}. {totals}"
    return f"Within the {allowed} that is allowed. {totals}"


def _total(difference: dict[str, Any]) -> str:
    before, after, unit = difference["before"], difference["after"], difference["unit"]
    name = difference["title"].split(" by ")[0]
    if after is None:
        return f"{name}: {amount(before, unit)} before, not measured after"
    share = difference["growth"]
    by = f" ({_share(share)})" if share else ""
    return f"{name}: {amount(before, unit)} -> {amount(after, unit)}{by}"


def _add(page: Page, difference: dict[str, Any]) -> None:
    rows = difference["rows"]
    if not rows:
        return
    unit = difference["unit"]
    suffix = f", {unit}" if unit not in ("bytes", difference["title"]) else ""
    page.heading(f"{difference['title'].capitalize()}{suffix}")
    page.verbatim(f"{'before':>{AMOUNT}}  {'after':>{AMOUNT}}  {'change':>{AMOUNT}}", "dim", indent=2)
    room = max(20, page.room(3 * (AMOUNT + 2) + 2))
    for row in rows[:ROWS]:
        before, after = row["before"], row["after"]
        amounts = (amount(before, unit), amount(after, unit), _signed(after - before, unit))
        columns = "  ".join(f"{text:>{AMOUNT}}" for text in amounts)
        page.verbatim(f"{columns}  {crop(printable(row['name']), room)}", indent=2)
    page.more(len(rows) - ROWS)


def amount(value: float, unit: str) -> str:
    """An amount of a comparison in its unit."""
    if unit.startswith("seconds"):
        return seconds(value) if value else "0 s"
    return size(value) if unit.startswith("bytes") else f"{value:,.0f}"


def _share(share: float) -> str:
    """`+12 %`, `-5 %`, `< 1 % less`."""
    text = percent(abs(share))
    if text.startswith("<"):
        return f"{text} {'more' if share > 0 else 'less'}"
    return f"{'+' if share > 0 else '-'}{text}"


def _signed(value: float, unit: str) -> str:
    text = amount(abs(value), unit)
    return text if text.startswith("0 ") else f"{'+' if value > 0 else '-'}{text}"
