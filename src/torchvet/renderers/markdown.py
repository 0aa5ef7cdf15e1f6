"""Markdown: the verdict and a table, for a comment on a pull request or a job's summary."""

from __future__ import annotations

import re
from typing import ClassVar

from torchvet.finding import Finding, Report
from torchvet.renderers.places import place_of
from torchvet.renderers.wording import encodable, printable

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$@])")
_CODE = re.compile(r"(`[^`]+`)")


class MarkdownRenderer:
    """The report as GitHub's Markdown."""

    format: ClassVar[str] = "markdown"
    extensions: ClassVar[tuple[str, ...]] = (".md", ".markdown")

    def render(self, report: Report, color: bool = False, width: int = 100) -> str:
        """The verdict as a heading, the findings as a table. `color` and `width` change nothing."""
        parts = [f"## torchvet: {escaped(_verdict(report))}"]
        if rests_on := _evidence(report):
            parts.append(escaped(rests_on))
        if report.findings:
            rows = [_row(finding) for finding in report.findings]
            parts.append("\n".join(["| severity | code | where | what | what to do |", "|---|---|---|---|---|", *rows]))
        if amp := report.facts.get("amp"):
            from torchvet.renderers.text_amp import markdown_section

            parts.append(markdown_section(amp))
        if forecast := report.facts.get("precision_forecast"):
            from torchvet.renderers.text_forecast import forecast_section  # imports rich, which is slow to load

            parts.append(forecast_section(forecast))
        if report.not_checked:
            items = [f"- {escaped(item.check)}: {escaped(item.reason)}" for item in report.not_checked]
            parts.append("\n".join(["### Not checked", "", *items]))
        return encodable("\n\n".join(parts)) + "\n"


def escaped(text: str) -> str:
    """A foreign text with Markdown's and HTML's special characters escaped; `code` stays code."""
    pieces = _CODE.split(printable(text))
    return "".join(_code(p) if _CODE.fullmatch(p) else _SPECIAL.sub(r"\\\1", p) for p in pieces)


def code_span(text: str) -> str:
    """Any text as code in a table's cell."""
    text = printable(text)
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return _code(f"{fence}{space}{text}{space}{fence}")


def _code(span: str) -> str:
    # Even within code, a bar ends a table's cell unless a backslash precedes it.
    return span.replace("|", "\\|")


def _verdict(report: Report) -> str:
    if report.subject.get("kind") == "check":
        from torchvet.renderers.listing import Ink, summary

        return summary(report, Ink(False)).split("\n")[0]
    if report.subject.get("kind") == "comparison":
        from torchvet.renderers.comparison import headline

        return headline(report)
    if report.subject.get("kind") == "amp":
        from torchvet.renderers.text_amp import headline as amp_headline

        return amp_headline(report)
    from torchvet.renderers.verdict import verdict

    return verdict(report)


def _evidence(report: Report) -> str:
    if report.facts.get("verdict") is None:
        return ""
    from torchvet.renderers.verdict import evidence

    return evidence(report)


def _row(finding: Finding) -> str:
    at = finding.location
    where = ""
    if at is not None:
        place = place_of(at.path)
        where = code_span(f"{place.file}:{place.cell + ':' if place.cell else ''}{at.line}")
    code, message = f"{finding.code} {escaped(finding.name)}", escaped(finding.message)
    return f"| {finding.severity} | {code} | {where} | {message} | {escaped(finding.remedy.summary)} |"
