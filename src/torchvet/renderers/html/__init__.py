"""HTML: one file that a person would rather look at than read. Without a network, for any browser of today."""

from __future__ import annotations

from typing import ClassVar

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Report


class HtmlRenderer:
    """The report as one self-contained page with its charts."""

    format: ClassVar[str] = "html"
    extensions: ClassVar[tuple[str, ...]] = (".html", ".htm")

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The page. `color` and `width` change nothing. Raises `BadInput` where Plotly is not installed."""
        from torchvet.renderers.html.page import page

        return page(report, drawing)
