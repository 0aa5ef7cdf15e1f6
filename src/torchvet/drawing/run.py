"""All charts of a recorded run, in their order, and why others are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchvet.charts import Chart, Drawing
from torchvet.drawing.growth import growth_charts
from torchvet.drawing.holders import holders_chart
from torchvet.drawing.memory import memory_chart, peaks_chart
from torchvet.drawing.numbers import numbers_chart
from torchvet.drawing.rank_map import rank_chart
from torchvet.drawing.time import time_chart

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.recording import RankRecording, Recording

MOST_RANKS = 16
"""Ranks that have charts of their own; the findings, the map and the icicle are of all."""
Draw = Callable[["RankRecording", "Report"], Chart | None]
_OF_A_RANK: tuple[tuple[str, Draw, str], ...] = (
    ("memory", memory_chart, "memory over the steps: nothing was sampled in this run"),
    ("peaks", peaks_chart, "the peak by category: no step was sampled"),
    ("time", time_chart, "the time of steps: fewer than two step boundaries were seen"),
    ("numbers", numbers_chart, "loss, gradient norm and loss scale: this run wrote none of them down"),
)


def drawing_of(recording: Recording, report: Report) -> Drawing:
    """The charts of a recording beside its report."""
    ranks = ranks_of(recording)
    shown = ranks[:MOST_RANKS]
    found: dict[str, list[Chart]] = {}
    missing = []
    for name, draw, reason in _OF_A_RANK:
        found[name] = [chart for rank in shown if (chart := draw(rank, report)) is not None]
        if not found[name]:
            missing.append(reason)
    if len(ranks) > MOST_RANKS:
        missing.append(f"{len(ranks) - MOST_RANKS} of {len(ranks)} ranks have no charts of their own")
    holders = holders_chart(recording, ranks)
    growth = growth_charts(recording, report)
    over_ranks = rank_chart(ranks)
    if holders is None:
        missing.append("who holds what: no step was sampled and no name was searched for")
    if len(ranks) > 1 and over_ranks is None:
        missing.append("ranks over time: they have no steps in common")
    whole = [*found["memory"], *([over_ranks] if over_ranks is not None else []), *growth]
    whole += [*([holders] if holders is not None else []), *found["peaks"], *found["time"], *found["numbers"]]
    return Drawing(charts=[_ranked(chart, len(ranks)) for chart in whole], missing=missing, sources=recording.sources)


def ranks_of(recording: Recording) -> list[RankRecording]:
    """The ranks by number, or the one process that the report is about."""
    return recording.members or recording.ranks[:1]


def _ranked(chart: Chart, ranks: int) -> Chart:
    """Without its rank where there is only one."""
    import msgspec

    return chart if ranks > 1 else msgspec.structs.replace(chart, rank=None)
