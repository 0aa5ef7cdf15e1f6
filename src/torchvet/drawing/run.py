"""All charts of a recorded run, in their order, and why others are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torchvet.charts import Chart, Drawing, guarded
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
_OF_A_RANK: tuple[tuple[str, Draw, str, str], ...] = (
    ("memory", memory_chart, "memory over the steps", "nothing was sampled in this run"),
    ("peaks", peaks_chart, "the peak by category", "no step was sampled"),
    ("time", time_chart, "the time of steps", "fewer than two step boundaries were seen"),
    ("numbers", numbers_chart, "loss, gradient norm and loss scale", "this run wrote none of them down"),
)


def drawing_of(recording: Recording, report: Report) -> Drawing:
    """The charts of a recording beside its report. One that fails is left out, and said to be missing."""
    ranks = ranks_of(recording)
    shown = ranks[:MOST_RANKS]
    missing: list[str] = []
    found = {
        name: _drawn(what, [partial(draw, rank, report) for rank in shown], reason, missing)
        for name, draw, what, reason in _OF_A_RANK
    }
    if len(ranks) > MOST_RANKS:
        missing.append(f"{len(ranks) - MOST_RANKS} of {len(ranks)} ranks have no charts of their own")
    reason = "no step was sampled and no name was searched for"
    holders = _drawn("who holds what", [partial(holders_chart, recording, ranks)], reason, missing)
    growth = growth_charts(recording, report, missing)
    reason = "they have no steps in common" if len(ranks) > 1 else ""
    over_ranks = _drawn("ranks over time", [partial(rank_chart, ranks)], reason, missing)
    whole = [*found["memory"], *over_ranks, *growth, *holders, *found["peaks"], *found["time"], *found["numbers"]]
    return Drawing(charts=[_ranked(chart, len(ranks)) for chart in whole], missing=missing, sources=recording.sources)


def _drawn(what: str, draws: Sequence[Callable[[], Chart | None]], reason: str, missing: list[str]) -> list[Chart]:
    """The charts of one kind. `missing` gets those that failed, or the `reason` why there is nothing to draw."""
    faults: list[str] = []
    charts = [chart for draw in draws if (chart := guarded(what, draw, faults)) is not None]
    missing += dict.fromkeys(faults)
    missing += [f"{what}: {reason}"] if reason and not charts and not faults else []
    return charts


def ranks_of(recording: Recording) -> list[RankRecording]:
    """The ranks by number, or the one process that the report is about."""
    return recording.members or recording.ranks[:1]


def _ranked(chart: Chart, ranks: int) -> Chart:
    """Without its rank where there is only one."""
    import msgspec

    return chart if ranks > 1 else msgspec.structs.replace(chart, rank=None)
