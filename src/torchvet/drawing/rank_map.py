"""Ranks over time: seconds of each rank's steps as a map, by what it did of its own where that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from torchvet.analysis.arrivals import Meetings, meetings_of
from torchvet.charts import Chart, only
from torchvet.drawing.time import stretches
from torchvet.formatting import count, ms

if TYPE_CHECKING:
    from torchvet.recording import RankRecording

COLUMNS = 240
"""Columns of the map at most."""
Row = list[tuple[int, float]]
"""Step and seconds."""


def rank_chart(ranks: Sequence[RankRecording]) -> Chart | None:
    """The map of several ranks; None for one, and where no steps were kept."""
    if len(ranks) < 2:
        return None
    meetings = meetings_of(ranks)
    rows = _own(meetings) if meetings is not None else _whole(ranks)
    if sum(bool(row) for row in rows) < 2:
        return None
    x, grid, notes = columns_of(rows)
    own = meetings is not None
    alone = "waiting for the other ranks is left out, and so are steps that torchvet itself made longer"
    return Chart(
        id="ranks",
        title="Ranks over time" + (": a rank's own work" if own else ": a step"),
        kind="heat",
        caption=_told(ranks, rows, own),
        x_title="step",
        unit="seconds",
        labels=[f"rank {rank.rank}" for rank in ranks],
        x=x,
        grid=grid,
        notes=[*notes, *only(own, alone)],
        columns=["rank", "mean a step", "median", "longest", "waiting a step"],
        rows=[_table_row(rank, row, meetings, at) for at, (rank, row) in enumerate(zip(ranks, rows, strict=True))],
    )


def columns_of(rows: Sequence[Row]) -> tuple[list[float], list[list[float | None]], list[str]]:
    """The first step of each column, a row of means a rank (None where it has none of its steps), and what to say of
    columns of several steps."""
    numbers = sorted({step for row in rows for step, _ in row})
    width = max(1, -(-len(numbers) // COLUMNS))
    columns = [numbers[at : at + width] for at in range(0, len(numbers), width)]
    where = {step: column for column, steps in enumerate(columns) for step in steps}
    text = f"{len(numbers):,} steps shown as {len(columns):,} columns (the mean of each {width:,})"
    return [float(c[0]) for c in columns], [_cells(row, where, len(columns)) for row in rows], only(width > 1, text)


def _own(meetings: Meetings) -> list[Row]:
    found = []
    for record in meetings.records:
        sums = [sum(parts) for parts in zip(*record.own.values(), strict=True)]
        found.append([(step, seconds) for step, seconds in zip(record.steps, sums, strict=False)])
    return found


def _whole(ranks: Sequence[RankRecording]) -> list[Row]:
    return [[(s.last, s.seconds) for s in stretches(rank)] for rank in ranks]


def _cells(row: Row, where: dict[int, int], columns: int) -> list[float | None]:
    found: list[list[float]] = [[] for _ in range(columns)]
    for step, seconds in row:
        found[where[step]].append(seconds)
    return [fmean(cell) if cell else None for cell in found]


def _table_row(rank: RankRecording, row: Row, meetings: Meetings | None, at: int) -> list[str]:
    values = [seconds for _, seconds in row]
    if not values:
        return [str(rank.rank), "", "", "", ""]
    waits = ms(fmean(meetings.waited[at])) if meetings is not None and meetings.waited[at] else ""
    return [str(rank.rank), ms(fmean(values)), ms(median(values)), ms(max(values)), waits]


def _told(ranks: Sequence[RankRecording], rows: Sequence[Row], own: bool) -> str:
    known = [(fmean(s for _, s in row), rank.rank) for row, rank in zip(rows, ranks, strict=True) if row]
    slowest, quickest = max(known), min(known)
    what = "its own work in a step" if own else "a step"
    return (
        f"Of {count(len(known), 'rank')} rank {slowest[1]} takes longest for {what}, {ms(slowest[0])} on the average, "
        f"and rank {quickest[1]} takes least, {ms(quickest[0])}."
    )
