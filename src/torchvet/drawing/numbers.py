"""Losses, gradient norms and loss scales over a run's steps, as far as it wrote them down."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchvet.analysis.steps import current_steps
from torchvet.charts import Chart, Mark, Series, Style, kept, only, thinned
from torchvet.drawing.memory import STEP
from torchvet.formatting import count
from torchvet.recording.records.base import Step
from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals, NumberSamples
from torchvet.recording.records.scaling import ScalingUse
from torchvet.recording.records.verify import Losses

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.recording import RankRecording

Pairs = list[tuple[float, float | None]]
_FEW = 12


def numbers_chart(rank: RankRecording, report: Report) -> Chart | None:
    """The loss on the left axis, gradient norm and loss scale on the right one; what is not finite is marked."""
    losses, norms = _losses(rank)
    scales = _scales(rank)
    named = (("loss", losses), ("gradient norm", norms), ("loss scale", scales))
    drawn = [_series(name, pairs) for name, pairs in named if len(pairs) > 1]
    if not drawn:
        return None
    series = [one for one, _ in drawn]
    gaps = any(value is None for _, value in (*losses, *norms))
    return Chart(
        id="numbers",
        title="Loss, gradient norm and loss scale",
        kind="lines",
        caption=_told(losses, norms, scales, rank),
        x_title=STEP,
        y_title="loss" if losses else "",
        right_title=" and ".join(s.name for s in series if s.right),
        rank=rank.rank,
        series=series,
        marks=_marks(rank),
        notes=[*(n for _, notes in drawn for n in notes), *only(gaps, "a gap is a value that was NaN or infinite")],
        columns=["step", "what", "value"],
        rows=[[f"{x:,.0f}", s.name, _written(y)] for s in series for x, y in zip(s.x, s.y, strict=True)],
    )


def _series(name: str, pairs: Pairs) -> tuple[Series, list[str]]:
    places, width = kept([value for _, value in pairs])
    x, y = [pairs[p][0] for p in places], [pairs[p][1] for p in places]
    notes = thinned(len(pairs), len(places), width, f"values of the {name}")
    # Between a few looks at a scaler nothing is known of its scale.
    style: Style = "points" if name == "loss scale" and len(x) < _FEW else "line"
    return Series(name=name, role=name, x=x, y=y, style=style, right=name != "loss"), notes


def _losses(rank: RankRecording) -> tuple[Pairs, Pairs]:
    """Losses and gradient norms by step, None where one was not finite. Of runs that were held side by side: each
    step's mean."""
    samples = rank.since_restart(NumberSamples)
    if samples:
        return (
            [(float(step), value) for r in samples for step, value in zip(r.loss_steps, r.losses, strict=False)],
            [(float(step), value) for r in samples for step, value in zip(r.norm_steps, r.norms, strict=False)],
        )
    records = rank.since_restart(Losses)
    return (
        [(float(r.tick), _mean(r.values)) for r in records if r.values],
        [(float(r.tick), _mean(r.gradients)) for r in records if r.gradients],
    )


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _scales(rank: RankRecording) -> Pairs:
    """The scale with each sampled loss; of runs without samples whenever a scaler's totals were written."""
    samples = rank.since_restart(NumberSamples)
    found: Pairs = [
        (float(n), s) for r in samples for n, s in zip(r.loss_steps, r.scales, strict=False) if s is not None
    ]
    if found:
        return found
    tick = 0
    current = set(map(id, current_steps(rank)))
    for line in rank.lines:
        if isinstance(line, Step) and id(line) in current:
            tick = line.n
        elif isinstance(line, ScalingUse) and line.enabled and line.scale is not None and math.isfinite(line.scale):
            found.append((float(tick), line.scale))
    return found


def _marks(rank: RankRecording) -> list[Mark]:
    """The first step with each kind of value that is not finite, and where an operator was found for it."""
    totals = rank.last(NonFiniteTotals)
    found = [Mark(x=float(r.tick), label=f"{_operator(r)}: not finite from here") for r in rank.all(NonFinite)[:1]]
    if totals is None or found:
        return found
    firsts = (("loss", totals.first_loss), ("gradient", totals.first_gradient))
    return [Mark(x=float(at), label=f"first {what} that is not finite") for what, at in firsts if at is not None]


def _operator(record: NonFinite) -> str:
    """`aten.std.correction` is `std` to who reads it."""
    return record.operator.removeprefix("aten.").partition(".")[0] or record.symptom


def _told(losses: Pairs, norms: Pairs, scales: Pairs, rank: RankRecording) -> str:
    parts = []
    for name, pairs in (("loss", losses), ("gradient norm", norms), ("loss scale", scales)):
        known = [(x, y) for x, y in pairs if y is not None]
        if known:
            (first, began), (last, ended) = known[0], known[-1]
            parts.append(f"{name}: {_written(began)} at step {count(first)}, {_written(ended)} at step {count(last)}")
    totals = rank.last(NonFiniteTotals)
    if totals is not None and (totals.losses or totals.gradients):
        parts.append(
            f"not finite in {count(totals.losses, 'loss', 'losses')} and {count(totals.gradients, 'step')} of gradients"
        )
    told = "; ".join(parts)
    return told[:1].upper() + told[1:] + "."


def _written(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:,.0f}" if value == round(value) and 1 <= abs(value) < 1e9 else f"{value:.4g}"
