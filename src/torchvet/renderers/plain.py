"""Text for people: a run or a trace as a page, a check as a list, a comparison as tables; no more is loaded."""

from __future__ import annotations

from typing import ClassVar

from torchvet.finding import Report


class TextRenderer:
    """The text that fits what the report is about."""

    format: ClassVar[str] = "text"
    extensions: ClassVar[tuple[str, ...]] = (".txt",)

    def render(self, report: Report, color: bool = False, width: int = 100) -> str:
        """The report as text, coloured on request, `width` columns wide where it is wrapped."""
        if report.subject.get("kind") == "check":
            from torchvet.renderers.listing import listing

            return listing(report, color, width)
        if report.subject.get("kind") == "comparison":
            from torchvet.renderers.comparison import render_comparison

            return render_comparison(report, color, width)
        if report.subject.get("kind") == "trace":
            from torchvet.renderers.text_trace import trace_page

            return trace_page(report, color, width)
        if report.subject.get("kind") == "amp":
            from torchvet.renderers.text_amp import AmpText

            return AmpText().render(report, color, width)
        if report.subject.get("kind") == "whatif":
            from torchvet.renderers.text_whatif import whatif_page

            return whatif_page(report, color, width)
        if report.subject.get("kind") == "fix":
            from torchvet.renderers.text_fix import fix_page

            return fix_page(report, color, width)
        from torchvet.renderers.text import TextRenderer as PageRenderer

        return PageRenderer().render(report, color, width)
