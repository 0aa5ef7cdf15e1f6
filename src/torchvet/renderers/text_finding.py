"""One finding as text: what, where, why, who holds it, how much and what to do, within one screen of 40 lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from torchvet.finding import Finding, Location, Measured, Related
from torchvet.renderers.page import Page, crop
from torchvet.renderers.places import at
from torchvet.renderers.wording import count, percent, printable, seconds, size
from torchvet.source.quote import Quote, quote

STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
MESSAGE, CAUSE, PATH, RELATED, MEASURED, REMEDY = 4, 7, 4, 6, 3, 7
"""The most lines that each part takes, so that a whole finding fits on one screen; JSON has all of it."""


def add_finding(page: Page, finding: Finding, sources: Mapping[str, Any] | None) -> None:
    """The whole finding, preceded by an empty line."""
    page.blank()
    page.styled(_header(finding, page.room(0)))
    page.paragraph(finding.message, indent=2, most=MESSAGE)
    if finding.location is not None:
        _add_location(page, finding.location, sources)
    page.blank()
    page.labelled("why", finding.cause, CAUSE)
    if finding.holder is not None and finding.holder.path:
        page.labelled("held by", " -> ".join(finding.holder.path), PATH)
    _add_related(page, finding.related)
    if amounts := measured(finding.measured):
        page.labelled("measured", amounts, MEASURED)
    page.labelled("what to do", finding.remedy.summary, REMEDY)


def add_note(page: Page, finding: Finding) -> None:
    """A finding in two lines at most."""
    where = f"{place(finding.location)}: " if finding.location else ""
    page.paragraph(
        f"{finding.severity} {finding.code} {finding.name}: {where}{finding.message}", indent=2, hang=2, most=2
    )


def place(location: Location) -> str:
    """`path:line in function`: see `places.at`."""
    within = f" in {location.function}" if location.function else ""
    return f"{at(location.path, location.line)}{within}"


def ranks(finding: Finding) -> str:
    """`rank 0`, `ranks 0, 2`, `all 4 ranks`; empty where it is not about ranks."""
    if finding.ranks and finding.rank is None:
        return f"all {len(finding.ranks)} ranks"
    if finding.ranks:
        return f"ranks {', '.join(map(str, finding.ranks))}"
    return f"rank {finding.rank}" if finding.rank is not None else ""


def measured(amounts: Measured) -> str:
    """What was measured, in one sentence; empty when nothing was."""
    parts = []
    if amounts.bytes_per_step is not None:
        tensors = f" ({count(amounts.tensors_per_step, 'tensor')})" if amounts.tensors_per_step else ""
        parts.append(f"{size(amounts.bytes_per_step)} per step{tensors}")
    if amounts.bytes is not None:
        parts.append(size(amounts.bytes) + (f" after {count(amounts.steps, 'step')}" if amounts.steps else ""))
    # A trace whose steps are not known is measured as if it were one.
    known = amounts.steps is not None
    if amounts.seconds_per_step is not None:
        parts.append(seconds(amounts.seconds_per_step) + (" per step" if known else ""))
    if amounts.share is not None:
        time = "step's time" if known else "trace's time"
        parts.append(f"{percent(amounts.share)} of the {time if amounts.seconds_per_step is not None else 'peak'}")
    if amounts.peak_bytes is not None:
        parts.append(f"peak {size(amounts.peak_bytes)}")
    if amounts.exhausted_at_step is not None:
        parts.append(f"out of memory at step {count(amounts.exhausted_at_step)}")
    return "; ".join(parts)


def _header(finding: Finding, width: int) -> Text:
    where = [ranks(finding)] if ranks(finding) else []
    where += [finding.device] if finding.device not in (None, "cpu") else []
    rest = f" {finding.code} {finding.name} ({', '.join([finding.evidence, *where])})"
    return Text.assemble(
        (finding.severity, STYLES[finding.severity]), (crop(printable(rest), width - len(finding.severity)), "bold")
    )


def _add_location(page: Page, location: Location, sources: Mapping[str, Any] | None) -> None:
    page.blank()
    page.paragraph(place(location), "cyan", indent=2, most=2)
    found = quote(location, sources)
    if found is not None:
        _add_quote(page, found, location.column)


def _add_quote(page: Page, found: Quote, column: int | None) -> None:
    digits = len(str(found.first + len(found.lines)))
    room = page.room(digits + 7)
    # Drop the common left margin, so that deeply nested code keeps its end.
    texts = [t.expandtabs(4) for t in found.lines]
    margin = min((len(t) - len(t.lstrip()) for t in texts if t.strip()), default=0)
    for number, text in enumerate(texts, start=found.first):
        line = crop(printable(text[margin:]), room)
        style = "bold" if number == found.marked else "dim"
        page.styled(Text.assemble((f"    {number:>{digits}} | ", "dim"), (line, style)))
        if number == found.marked:
            mark = _carets(found.lines[number - found.first], text, column, margin, room)
            page.styled(Text.assemble((" " * (4 + digits) + " | ", "dim"), (mark, "red")))


def _carets(raw: str, text: str, column: int | None, margin: int, room: int) -> str:
    """Carets under the statement from its column on, or under the whole of it where the column is unknown."""
    code = len(text.rstrip())
    start = len(text) - len(text.lstrip())
    if column is not None and 1 <= column <= len(raw):
        start = len(raw[: column - 1].expandtabs(4))
    before, under = printable(text[margin:start]), printable(text[start:code])
    left = min(cell_len(before), room - 1)
    return " " * left + "^" * max(1, min(cell_len(under), room - left))


def _add_related(page: Page, related: list[Related]) -> None:
    last = len(page.lines) + RELATED
    for number, item in enumerate(related):
        if len(page.lines) + 2 > last:
            page.labelled("", f"and {len(related) - number} more; JSON has all of them", 1)
            return
        where = f"{at(item.path, item.line or 1)}: " if item.path else ""
        repeated = number > 0 and related[number - 1].role == item.role
        page.labelled("" if repeated else item.role.replace("-", " "), f"{where}{item.message}", 2)
