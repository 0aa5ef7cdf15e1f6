"""A page of terminal text: styled lines, wrapped and indented, each paragraph cut at a number of lines.

Foreign strings go in as plain text: rich's markup is never parsed, so brackets in a name stay brackets.
"""

from __future__ import annotations

import io

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from torchvet.finding import Report
from torchvet.renderers.wording import printable

NARROWEST, USUAL = 40, 100
WHOLE = 0
"""As a width: for files and pipes, where nothing need be cut. Paragraphs are wrapped at `USUAL` columns."""
_ENDLESS = 10_000
LABEL = 15
"""Columns that the labels of `labelled` take, their indent and the space after them included."""
MORE = " ..."
UNCHECKED = 8
"""How many entries of what was not checked a page shows; JSON has all of them."""


class Page:
    """Lines of text, at most `width` columns each, added from top to bottom; with `WHOLE` nothing is cut."""

    def __init__(self, width: int) -> None:
        self.whole = width == WHOLE
        self.width = max(NARROWEST, width or USUAL)
        self.lines: list[Text] = []
        self._console = _console(self.width, color=False)

    def part(self) -> Page:
        """An empty page of the same width."""
        return Page(WHOLE if self.whole else self.width)

    def room(self, taken: int) -> int:
        """The columns of a row that is not wrapped, less those that are taken."""
        return _ENDLESS if self.whole else self.width - taken

    def blank(self) -> None:
        """An empty line, never two in a row nor one at the top."""
        if self.lines and self.lines[-1].plain:
            self.lines.append(Text())

    def heading(self, text: str) -> None:
        """A section's title after an empty line."""
        self.blank()
        self.verbatim(text, "bold")

    def verbatim(self, text: str, style: str = "", indent: int = 0) -> None:
        """One line to be copied as it is: never wrapped, even if it is longer than the page is wide."""
        self.lines.append(Text(" " * indent + printable(text), style=style))

    def styled(self, line: Text) -> None:
        """One line that the caller made and fitted to the page."""
        self.lines.append(line)

    def paragraph(self, text: str, style: str = "", indent: int = 0, hang: int = 0, most: int | None = None) -> None:
        """Wrapped text; lines after the first are indented by `hang` more. Past `most` lines it ends in an ellipsis."""
        self._add(Text(" " * indent), text, style, indent + hang, most)

    def labelled(self, label: str, text: str, most: int | None = None) -> None:
        """A label in the left column and wrapped text beside it. One that is longer than the column pushes the text of
        its line to the right."""
        column = max(LABEL - 3, min(cell_len(printable(label)), self.width // 2))
        self._add(Text("  " + padded(label, column) + " ", style="dim"), text, "", LABEL, most)

    def more(self, number: int, of: str = "") -> None:
        """Say that `number` entries are not shown; nothing for zero or less."""
        if number > 0:
            self.paragraph(f"and {number} more{of}; JSON has all of them", indent=2)

    def section(self, title: str, part: Page) -> None:
        """The lines of another page under a heading; nothing if it has none."""
        if part.lines:
            self.heading(title)
            self.lines.extend(part.lines)

    def _add(self, lead: Text, text: str, style: str, indent: int, most: int | None) -> None:
        room = self.width - max(indent, lead.cell_len)
        # Wrap first and style later: rich joins and pads the spans at line ends otherwise.
        wrapped = [t.plain.rstrip() for t in Text(printable(text)).wrap(self._console, room, overflow="fold")]
        if most is not None and len(wrapped) > most and not self.whole:
            wrapped = [*wrapped[: most - 1], crop(wrapped[most - 1] + MORE, room)]
        for number, line in enumerate(wrapped):
            body = Text(line, style=style)
            body.highlight_regex(r"`[^`]+`", "bold")
            start = lead if number == 0 else Text(" " * indent)
            self.lines.append(Text.assemble(start, body))

    def text(self, color: bool) -> str:
        """The page as one string, with or without ANSI colors; a newline at the end."""
        console = _console(self.width, color)
        while self.lines and not self.lines[-1].plain:
            self.lines.pop()
        for line in self.lines:
            line.rstrip()
            console.print(line, soft_wrap=True)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def add_not_checked(page: Page, report: Report) -> None:
    """The first entries of what was not checked, under a heading; nothing where there are none."""
    if not report.not_checked:
        return
    page.heading("Not checked")
    for item in report.not_checked[:UNCHECKED]:
        page.paragraph(f"{item.check}: {item.reason}", indent=2, hang=2, most=2)
    page.more(len(report.not_checked) - UNCHECKED)


def crop(text: str, room: int) -> str:
    """The text, cut to `room` columns with an ellipsis where it is wider."""
    if cell_len(text) <= room:
        return text
    text = text.removesuffix(MORE)
    while text and cell_len(text) + len(MORE) > room:
        text = text[:-1]
    return text.rstrip() + MORE


def padded(text: str, room: int) -> str:
    """The text cut or filled up to exactly `room` columns; a wide character takes two, as in a terminal."""
    return set_cell_size(crop(printable(text), room), room)


def _console(width: int, color: bool) -> Console:
    # An empty environment: the caller decides about color, not NO_COLOR or the terminal.
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=False,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        force_jupyter=False,  # else it shows the text itself in a notebook, and gives none
        _environ={},
    )
