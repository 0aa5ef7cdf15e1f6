"""Ranks over time: seconds of each rank's steps as a map, by what it did of its own where that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from torchvet.analysis.arrivals import Meetings, meetings_of
from torchvet.charts import Chart
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
    numbers = sorted({step for row in rows for step, _ in row})
    if not numbers or sum(bool(row) for row in rows) < 2:
        return None
    width = -(-len(numbers) // COLUMNS)
    stretches_ = [numbers[i : i + width] for i in range(0, len(numbers), width)]
    where = {step: column for column, steps in enumerate(stretches_) for step in steps}
    grid = [_cells(row, where, len(stretches_)) for row in rows]
    means = [fmean(s for _, s in row) if row else None for row in rows]
    own = meetings is not None
    notes = (
        [f"{len(numbers):,} steps shown as {len(stretches_):,} columns (the mean of each {width:,})"]
        if width > 1
        else []
    )
    if own:
        notes.append("waiting for the other ranks is left out, and so are steps that torchvet itself made longer")
    return Chart(
        id="ranks",
        title="Ranks over time" + (": a rank's own work" if own else ": a step"),
        kind="heat",
        caption=_told(ranks, means, own),
        x_title="step",
        unit="seconds",
        labels=[f"rank {rank.rank}" for rank in ranks],
        x=[float(steps[0]) for steps in stretches_],
        grid=grid,
        notes=notes,
        columns=["rank", "mean a step", "median", "longest", "waiting a step"],
        rows=[_table_row(rank, row, meetings, at) for at, (rank, row) in enumerate(zip(ranks, rows, strict=True))],
    )


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


def _told(ranks: Sequence[RankRecording], means: list[float | None], own: bool) -> str:
    known = [(mean, rank.rank) for mean, rank in zip(means, ranks, strict=True) if mean is not None]
    slowest, quickest = max(known), min(known)
    what = "its own work in a step" if own else "a step"
    return (
        f"Of {count(len(known), 'rank')} rank {slowest[1]} takes longest for {what}, {ms(slowest[0])} on the average, "
        f"and rank {quickest[1]} takes least, {ms(quickest[0])}."
    )
