"""Text for people: one page for each kind of report."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Report

_PAGES = {
    "check": ("listing", "listing"),
    "comparison": ("comparison", "comparison_page"),
    "trace": ("text_trace", "trace_page"),
    "amp": ("text_amp", "amp_page"),
    "whatif": ("text_whatif", "whatif_page"),
    "fix": ("text_fix", "fix_page"),
    "fleet": ("text_fleet", "fleet_page"),
    "doctor": ("text_doctor", "doctor_page"),
}
"""By the kind of a report's subject: the module and its function of (report, color, width). Loaded when asked for,
because a check needs no rich, which takes longer to import than a small check takes."""


class TextRenderer:
    """The report as a page of text that fits its kind."""

    format: ClassVar[str] = "text"
    extensions: ClassVar[tuple[str, ...]] = (".txt",)

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The report as text, colored on request, `width` columns wide where it is wrapped."""
        module, name = _PAGES.get(str(report.subject.get("kind")), ("text", "run_page"))
        page = getattr(import_module(f"torchvet.renderers.{module}"), name)
        return str(page(report, color, width))
