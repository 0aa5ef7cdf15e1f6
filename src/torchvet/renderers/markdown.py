"""Markdown: the verdict and a table, for a comment on a pull request or a job's summary."""

from __future__ import annotations

from typing import Any, ClassVar

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Finding, Report
from torchvet.renderers.markdown_text import code_span, escaped
from torchvet.renderers.places import place_of
from torchvet.renderers.verdict import evidence, headline
from torchvet.renderers.wording import encodable, percent

_LINES = 5


class MarkdownRenderer:
    """The report as GitHub's Markdown."""

    format: ClassVar[str] = "markdown"
    extensions: ClassVar[tuple[str, ...]] = (".md", ".markdown")

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The verdict as a heading, the findings as a table. `color` and `width` change nothing."""
        parts = [f"## torchvet: {escaped(headline(report))}"]
        if rests_on := _evidence(report):
            parts.append(escaped(rests_on))
        if report.findings:
            rows = [_row(finding) for finding in report.findings]
            parts.append("\n".join(["| severity | code | where | what | what to do |", "|---|---|---|---|---|", *rows]))
        if lines := report.part("time").get("lines"):
            parts.append(_time(lines))
        if doctor := report.facts.get("doctor"):
            from torchvet.renderers.text_doctor import markdown_section as doctor_section

            parts.append(doctor_section(doctor))
        if amp := report.facts.get("amp"):
            from torchvet.renderers.text_amp import markdown_section

            parts.append(markdown_section(amp))
        if forecast := report.facts.get("precision_forecast"):
            from torchvet.renderers.sections.forecast import forecast_section  # imports rich, which is slow to load

            parts.append(forecast_section(forecast))
        if tried := report.facts.get("tried"):
            from torchvet.renderers.text_facts import tried_section

            parts.append(tried_section(tried))
        if report.not_checked:
            items = [f"- {escaped(item.check)}: {escaped(item.reason)}" for item in report.not_checked]
            parts.append("\n".join(["### Not checked", "", *items]))
        return encodable("\n\n".join(parts)) + "\n"


def _time(lines: list[dict[str, Any]]) -> str:
    """The lines that take most of a step."""
    rows = [
        f"| {code_span(place_of(line['path']).file + ':' + str(line['line']))} "
        f"| {1e3 * line['seconds_per_step']:.2f} ms | {percent(line['share'])} "
        f"| {code_span(line['code']) if line['code'] else ''} |"
        for line in lines[:_LINES]
    ]
    return "\n".join(["### Time of a step", "", "| where | a step | share | code |", "|---|---|---|---|", *rows])


def _evidence(report: Report) -> str:
    if report.facts.get("verdict") is None:
        return ""
    return evidence(report)


def _row(finding: Finding) -> str:
    at = finding.location
    where = ""
    if at is not None:
        place = place_of(at.path)
        where = code_span(f"{place.file}:{place.cell + ':' if place.cell else ''}{at.line}")
    code, message = f"{finding.code} {escaped(finding.name)}", escaped(finding.message)
    return f"| {finding.severity} | {code} | {where} | {message} | {escaped(finding.remedy.summary)} |"
