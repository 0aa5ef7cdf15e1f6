"""HTML: a short part of a page for notebooks. Every foreign string is escaped; no script, and no color of its own."""

from __future__ import annotations

from html import escape

from torchvet.finding import Finding, Report
from torchvet.renderers.text_finding import measured, place
from torchvet.renderers.verdict import evidence, notes, serious, verdict
from torchvet.renderers.wording import encodable, printable
from torchvet.source.quote import quote

_MOST, _NOTES, _GAPS = 5, 8, 8
"""Findings in full, notes, and entries of what was not checked; JSON has all of them."""


def fragment(report: Report) -> str:
    """The report as HTML that fits into a page of any theme."""
    found = serious(report)
    parts = [f"<p><strong>torchvet: {_text(_verdict(report))}</strong></p>"]
    if report.facts.get("verdict") and (rests_on := evidence(report)):
        parts.append(f"<p>{_text(rests_on)}</p>")
    parts += [_finding(one, report) for one in found[:_MOST]]
    brief = [*found[_MOST:], *notes(report)]
    parts.append(_list("Also", [_brief(one) for one in brief], _NOTES))
    gaps = [f"{item.check}: {item.reason}" for item in report.not_checked]
    parts.append(_list("Not checked", gaps, _GAPS))
    return encodable('<div class="torchvet">\n' + "\n".join(filter(None, parts)) + "\n</div>\n")


def _verdict(report: Report) -> str:
    """The first line; of a check it is its summary."""
    if report.subject.get("kind") == "check":
        from torchvet.renderers.listing import Ink, summary

        return summary(report, Ink(False)).split("\n")[0]
    return verdict(report)


def _text(text: str) -> str:
    return escape(printable(text))


def _finding(finding: Finding, report: Report) -> str:
    rows = [("where", _where(finding, report)), ("why", _text(finding.cause))]
    if finding.holder is not None and finding.holder.path:
        rows.append(("held by", f"<code>{_text(' → '.join(finding.holder.path))}</code>"))
    rows += [("measured", _text(measured(finding.measured))), ("what to do", _text(finding.remedy.summary))]
    cells = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{label}</th>'
        f'<td style="text-align: left">{value}</td></tr>'
        for label, value in rows
        if value
    )
    head = f"{finding.severity} {finding.code} {finding.name}: {finding.message}"
    return f"<details open><summary>{_text(head)}</summary><table>{cells}</table></details>"


def _where(finding: Finding, report: Report) -> str:
    if finding.location is None:
        return ""
    where = _text(place(finding.location))
    found = quote(finding.location, report.part("sources"))
    if found is None:
        return where
    lines = [f"{n:>4} {'>' if n == found.marked else ' '} {line}" for n, line in enumerate(found.lines, found.first)]
    text = "\n".join(escape("".join(c if c == "\t" else printable(c) for c in line)) for line in lines)
    return f"{where}<pre>{text}</pre>"


def _brief(finding: Finding) -> str:
    where = f"{place(finding.location)}: " if finding.location is not None else ""
    return f"{finding.severity} {finding.code} {finding.name}: {where}{finding.message}"


def _list(title: str, texts: list[str], most: int) -> str:
    if not texts:
        return ""
    items = "".join(f"<li>{_text(text)}</li>" for text in texts[:most])
    rest = f"<li>and {len(texts) - most} more; JSON has all of them</li>" if len(texts) > most else ""
    return f"<details><summary>{title} ({len(texts)})</summary><ul>{items}{rest}</ul></details>"
