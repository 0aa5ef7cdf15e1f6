"""GitHub Actions workflow commands: an annotation for each finding, on the line that it is about."""

from __future__ import annotations

from typing import ClassVar

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Finding, Report
from torchvet.renderers.places import place_of, within_cell
from torchvet.renderers.wording import encodable, printable

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


class GithubRenderer:
    """One line for each finding: `::error file=train.py,line=3,col=5,title=...::message`."""

    format: ClassVar[str] = "github"
    extensions: ClassVar[tuple[str, ...]] = ()

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The annotations; a lone newline if there are none. `color` and `width` change nothing."""
        lines = [_annotation(finding) for finding in report.findings]
        title = value("torchvet: not checked")
        lines += [f"::notice title={title}::{data(f'{i.check}: {i.reason}')}" for i in report.not_checked]
        return "\n".join(lines) + "\n"


def data(text: str) -> str:
    """A message for a workflow command: on one line, with line ends and percent signs escaped."""
    lines = [printable(line) for line in text.splitlines()]
    return encodable("\n".join(lines)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def value(text: str) -> str:
    """A property's value: also without the characters that would end it."""
    return data(text).replace(":", "%3A").replace(",", "%2C")


def _annotation(finding: Finding) -> str:
    properties = []
    at = finding.location
    if at is not None:
        place = place_of(at.path)
        properties.append(("file", place.file))
        if not place.cell:
            properties.append(("line", str(at.line)))
            properties += [("endLine", str(at.end_line))] if at.end_line is not None else []
            properties += [("col", str(at.column))] if at.column is not None else []
    properties.append(("title", f"{finding.code} {finding.name}"))
    written = ",".join(f"{name}={value(text)}" for name, text in properties)
    message = f"{within_cell(at)}{finding.message}"
    if finding.remedy.summary:
        message += f"\n{finding.remedy.summary}"
    return f"::{_LEVELS[finding.severity]} {written}::{data(message)}"
