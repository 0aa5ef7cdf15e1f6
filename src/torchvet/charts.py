"""What can be drawn of a run or a file: typed series without a word on how they look, as plain JSON.

A `Drawing` goes beside a report to the formats that draw (HTML). Sizes are bytes, times are seconds. Every chart says
its main figures in its caption and has its numbers as a table, so that nobody has to see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from torchvet.errors import TorchvetError

Kind = Literal["lines", "bars", "heat", "icicle", "blocks"]
Unit = Literal["bytes", "seconds", "bits", "share", ""]
Style = Literal["line", "area", "dash", "points", "bar"]
T = TypeVar("T")
MOST_POINTS = 2_000
"""Points of a series at most."""
MOST_ROWS = 40
"""Rows of the table beside a chart at most."""


class Series(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Points in the order of `x`; None is a gap. Areas of one chart lie on each other. `role` names what it is (a
    category, a phase), so that it has the same color everywhere; `notes` are a text a point, `widths` those of bars.
    `right`: on an axis of its own on the right."""

    name: str
    x: list[float]
    y: list[float | None]
    style: Style = "line"
    role: str = ""
    widths: list[float] = []
    notes: list[str] = []
    right: bool = False


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line across the chart at `x`, or at `y`; `finding` is the number of the finding it stands for, from 0. A `calm`
    one says nothing bad."""

    label: str
    x: float | None = None
    y: float | None = None
    finding: int | None = None
    calm: bool = False


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of the x axis."""

    label: str
    start: float
    end: float


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A box of an icicle; `parent` is the place of the one around it in the chart's list, None for the outermost.
    `value` is the whole of it, that of the boxes within included."""

    label: str
    value: float
    parent: int | None = None
    role: str = ""


class Box(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a row of blocks: where it begins in the row, how long it is, and what it is."""

    row: int
    start: float
    size: float
    role: str
    note: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of the axes that is worth a look by itself, by its name; the first of a chart is shown first."""

    label: str
    x: tuple[float, float]
    y: tuple[float, float] | None = None


class Chart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One chart. Of several with one `id` each is of one rank, and one is shown at a time.

    `lines` and `bars` have `series` (by `labels`, where there are some), `icicle` has `nodes`, `heat` a `grid` of
    values by row (`labels`) and column (`x`), `blocks` has `boxes` in rows (`labels`). `ticks` are thin lines at places
    of the x axis. What is `stepped` keeps a value until the next one. `notes` say what was left out. `rows` is the
    table, its titles in `columns`.
    """

    id: str
    title: str
    kind: Kind
    caption: str
    x_title: str = ""
    x_unit: Unit = ""
    y_title: str = ""
    unit: Unit = ""
    right_title: str = ""
    right_unit: Unit = ""
    rank: int | None = None
    stepped: bool = False
    series: list[Series] = []
    marks: list[Mark] = []
    spans: list[Span] = []
    ticks: list[float] = []
    nodes: list[Node] = []
    x: list[float] = []
    labels: list[str] = []
    grid: list[list[float | None]] = []
    boxes: list[Box] = []
    views: list[View] = []
    notes: list[str] = []
    columns: list[str] = []
    rows: list[list[str]] = []


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """All charts of a report, what has none and why, and the text of the program by path."""

    charts: list[Chart] = []
    missing: list[str] = []
    sources: dict[str, str] = {}


NOTHING = Drawing()
"""Of a report at hand without what it was made of."""


def guarded(what: str, make: Callable[[], T], missing: list[str]) -> T | None:
    """What `make` makes for a chart. No report is lost to a fault in it: the chart is left out, `missing` says so."""
    try:
        return make()
    except TorchvetError as error:
        missing.append(f"{what}: {error}")
    except Exception as error:
        missing.append(f"{what}: {_fault(error)}")
    return None


def _fault(error: Exception) -> str:
    """An error of torchvet's own with the place that raised it, for who reports it."""
    place, at = "", error.__traceback__
    while at is not None:
        path = Path(at.tb_frame.f_code.co_filename)
        if path.is_relative_to(Path(__file__).parent):
            place = f", {path.relative_to(Path(__file__).parent)}:{at.tb_lineno}"
        at = at.tb_next
    return f"this is a bug in torchvet, please report it ({type(error).__name__}: {error}{place})"


def kept(values: Sequence[float | None], most: int = MOST_POINTS) -> tuple[list[int], int]:
    """The places of the values to draw, at most so many, and of how many values each stretch is: of each the lowest
    and the highest are kept, and the first and the last of all. The stretch is 1 where all are kept."""
    number = len(values)
    if number <= most:
        return list(range(number)), 1
    width = -(-number * 2 // max(2, most - 2))
    found = {0, number - 1}
    for first in range(0, number, width):
        known = [(value, at) for at in range(first, min(first + width, number)) if (value := values[at]) is not None]
        if known:
            found |= {min(known)[1], max(known, key=lambda pair: (pair[0], -pair[1]))[1]}
    return sorted(found), width


def thinned(number: int, shown: int, width: int, what: str = "points") -> list[str]:
    """What to say of a series of which not all values are shown; nothing where all are."""
    text = f"{number:,} {what} shown as {shown:,} points (the lowest and the highest of each {width:,})"
    return only(width > 1, text)


def only(wanted: bool, note: str) -> list[str]:
    """A note where it is wanted."""
    return [note] if wanted else []
