"""What the name of a finding held at each search, beside the rate that was reported, up to where memory ends."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torchvet.analysis import growth_of
from torchvet.analysis.growth import usable_censuses
from torchvet.analysis.growth_series import series_of, size_of
from torchvet.analysis.steps import steps_until
from torchvet.charts import Chart, Mark, Series, View, guarded
from torchvet.formatting import count, size

if TYPE_CHECKING:
    from torchvet.analysis.growth import Growth
    from torchvet.analysis.growth_series import Points
    from torchvet.finding import Finding, Holder, Report
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Holding

MOST = 6
"""Findings whose growth is drawn, the gravest ones."""


def growth_charts(recording: Recording, report: Report, missing: list[str]) -> list[Chart]:
    """One for each of the findings that speak of a name that grows; `missing` gets those that fail."""
    found: list[Chart] = []
    for number, finding in enumerate(report.findings):
        if len(found) < MOST and finding.holder is not None and finding.measured.bytes_per_step:
            draw = partial(_chart, finding, finding.holder, number, len(found), recording)
            chart = guarded(f"growth of {finding.holder.name}", draw, missing)
            found += [chart] if chart is not None else []
    return found


def _chart(finding: Finding, holder: Holder, number: int, place: int, recording: Recording) -> Chart | None:
    """Of the first rank that the finding is about and that has searched for the name."""
    ranks = [r for r in recording.ranks if finding.rank is None or r.rank == finding.rank]
    charts = (_of_rank(finding, holder, number, place, rank) for rank in ranks)
    return next((chart for chart in charts if chart is not None), None)


def _of_rank(finding: Finding, holder: Holder, number: int, place: int, rank: RankRecording) -> Chart | None:
    growth = next((g for g in growth_of(rank).growths if g.holding.path == holder.path), None)
    points = series_of(usable_censuses(rank)).get((growth.holding.scope, *holder.path), []) if growth else []
    if growth is None or len(points) < 2:
        return None
    x = [float(steps_until(rank, tick, growth.kind)) for tick, _ in points]
    y = [float(size_of(h)) for _, h in points]
    rate, end = finding.measured.bytes_per_step or 0.0, finding.measured.exhausted_at_step
    forecast, expected = _forecast(growth, points, x, rate, end)
    notes = [_items(h) for _, h in points]
    return Chart(
        id="growth" if place == 0 else f"growth-{place + 1}",
        title=f"Growth of {holder.name}",
        kind="lines",
        caption=_told(finding, growth, points, x),
        x_title=f"{growth.kind} step",
        unit="bytes",
        series=[
            Series(name=f"forecast: {size(rate)} a step", role="forecast", x=forecast, y=expected, style="dash"),
            Series(name=f"held by {holder.name}", role="growing", x=x, y=[*y], notes=notes),
        ],
        marks=_end(end, number),
        views=_views(x, y, rate, end),
        columns=["step", "bytes", "tensors", "graph nodes"],
        rows=[
            [count(at), size(held), count(h.tensors), count(h.nodes)]
            for at, held, (_, h) in zip(x, y, points, strict=True)
        ],
    )


def _forecast(
    growth: Growth, points: Points, x: list[float], rate: float, end: int | None
) -> tuple[list[float], list[float | None]]:
    """The rate of the report as a line through the last search: from where the name began to rise to where memory ends,
    or as far again as was measured."""
    first = next((i for i, (tick, _) in enumerate(points) if tick >= growth.first_tick), 0)
    until = float(end) if end is not None and end > x[-1] else 2 * x[-1]
    last = size_of(points[-1][1])
    places = [x[first], x[-1], until]
    return places, [max(0.0, last - rate * (x[-1] - at)) for at in places]


def _end(step: int | None, finding: int) -> list[Mark]:
    if step is None:
        return []
    return [Mark(x=float(step), label=f"memory ends at step {count(step)}", finding=finding)]


def _items(holding: Holding) -> str:
    parts = [count(holding.tensors, "tensor")] if holding.tensors else []
    return ", ".join(parts + ([count(holding.nodes, "graph node")] if holding.nodes else []))


def _views(x: list[float], y: list[float], rate: float, end: int | None) -> list[View]:
    """What was measured, and, where memory ends, the way there."""
    wide = max(1.0, x[-1] - x[0])
    near = View(
        label="measured",
        x=(max(0.0, x[0] - 0.1 * wide), x[-1] + 0.5 * wide),
        y=(0.0, 1.08 * (y[-1] + 0.5 * wide * rate)),
    )
    if end is None or end <= x[-1]:
        return [near]
    return [near, View(label="until memory ends", x=(0.0, 1.04 * end), y=(0.0, 1.08 * (y[-1] + rate * (end - x[-1]))))]


def _told(finding: Finding, growth: Growth, points: Points, x: list[float]) -> str:
    first, last = points[0][1], points[-1][1]
    told = f"It held {size(size_of(first))} at step {count(x[0])} and {size(size_of(last))} at step {count(x[-1])}"
    rate = finding.measured.bytes_per_step or 0.0
    told += f": {size(rate)} more every {growth.kind} step"
    end = finding.measured.exhausted_at_step
    return f"{told}. At that rate memory ends at step {count(end)}." if end is not None else f"{told}."
