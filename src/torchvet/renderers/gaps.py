"""What was not looked at, on a page of text."""

from __future__ import annotations

from torchvet.finding import Report
from torchvet.renderers.page import Page

UNCHECKED = 8
"""Entries that are shown; JSON has all of them."""


def add_not_checked(page: Page, report: Report) -> None:
    """The first of them under a heading; nothing where there is nothing to say."""
    if not report.not_checked:
        return
    page.heading("Not checked")
    for item in report.not_checked[:UNCHECKED]:
        page.paragraph(f"{item.check}: {item.reason}", indent=2, hang=2, most=2)
    if len(report.not_checked) > UNCHECKED:
        page.paragraph(f"and {len(report.not_checked) - UNCHECKED} more; JSON has all of them", indent=2)
