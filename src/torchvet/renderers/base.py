"""What a renderer is: two attributes and one method."""

from __future__ import annotations

from typing import ClassVar, Protocol

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Report


class Renderer(Protocol):
    """Turns a report into text. Pure: the same report always gives the same text."""

    format: ClassVar[str]
    """The name that `--format` takes."""
    extensions: ClassVar[tuple[str, ...]]
    """The file extensions that `-o` takes, lower case, with the dot; the first is the usual one."""

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The whole text, ending in a newline. `width` is in terminal columns, 0 where nothing is to be cut; formats
        without lines ignore it, and those of text ignore the `drawing`."""
        ...
