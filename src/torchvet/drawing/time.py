"""The time of a run's steps by phase."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from torchvet.analysis.steps import current_steps
from torchvet.charts import Chart, Series, Style, View, kept, only, thinned
from torchvet.drawing.memory import STEP, sampled
from torchvet.formatting import ms, percent

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.recording import RankRecording
    from torchvet.recording.records.base import Step

PHASES = ("data", "forward", "backward", "optimizer", "other")
_NAMES = {"other": "forward and other"}
_MOST, _SLOW = 0.9, 3.0
"""The part of the steps that a view of most of them fits, and how much slower the slowest must be for it."""
_BARS = 150
"""Points up to which each is a bar."""


class Stretch(NamedTuple):
    """Steps that were written down together: the last one's number, how many, seconds of each, and by phase."""

    last: int
    steps: int
    seconds: float
    phases: dict[str, float]
    kind: str


def stretches(rank: RankRecording) -> list[Stretch]:
    """The steps of a rank but the first, whose beginning is not known."""
    rows: list[tuple[Step, int, dict[str, float], list[str]]] = []
    for step in current_steps(rank):
        # Kinds that share a boundary are written one after the other; evaluation passes are parts of steps there.
        if rows and rows[-1][0].n == step.n:
            before = rows.pop()
            phases = {p: before[2].get(p, 0.0) + step.phases.get(p, 0.0) for p in {*before[2], *step.phases}}
            rows.append((step, before[1] + step.count, phases, [*before[3], step.kind]))
        else:
            rows.append((step, step.count, dict(step.phases), [step.kind]))
    return [
        Stretch(
            step.n,
            number,
            (step.t - before.t) / max(1, number),
            {p: s / max(1, number) for p, s in phases.items()},
            " and ".join(dict.fromkeys(kinds)),
        )
        for (before, *_), (step, number, phases, kinds) in pairwise(rows)
    ]


def time_chart(rank: RankRecording, report: Report) -> Chart | None:
    """Seconds of each step, by phase where that was measured."""
    rows = stretches(rank)
    if not rows:
        return None
    places, width = kept([row.seconds for row in rows])
    shown = [rows[p] for p in places]
    phases = [p for p in PHASES if any(row.phases.get(p) for row in rows)]
    spans = sampled(rank)
    most = max(row.steps for row in rows)
    notes = thinned(len(rows), len(shown), width, "records of steps")
    notes += only(bool(spans), "shaded: sampled steps, which torchvet itself makes slower")
    notes += only(most > 1, f"where steps were written down together (up to {most:,}) a point is their mean")
    notes += only(_simulated(rank), "it is the time of the simulation, not of a card")
    return Chart(
        id="time",
        title="Time of steps by phase",
        kind="lines",
        caption=_told(rows),
        x_title=STEP,
        unit="seconds",
        rank=rank.rank,
        series=_series(shown, phases),
        spans=spans,
        views=_views(rows),
        notes=notes,
        columns=["step", "kind", "seconds", *phases],
        rows=[[f"{r.last:,}", r.kind, ms(r.seconds), *(ms(r.phases.get(p, 0.0)) for p in phases)] for r in shown],
    )


def _views(rows: list[Stretch]) -> list[View]:
    """Most of the steps by themselves, where a few slow ones would make them all look alike."""
    ordered = sorted(row.seconds for row in rows)
    most, slowest = ordered[int(_MOST * (len(ordered) - 1))], ordered[-1]
    if slowest < _SLOW * most:
        return []
    x = rows[0].last - 0.5, rows[-1].last + 0.5
    return [View(label="all", x=x, y=(0.0, 1.05 * slowest)), View(label="most steps", x=x, y=(0.0, 1.3 * most))]


def _simulated(rank: RankRecording) -> bool:
    return rank.program is not None and rank.program.simulated is not None


def _series(rows: list[Stretch], phases: list[str]) -> list[Series]:
    """A series a phase; the kinds of the steps stand with the last, or with all there is."""
    x, kinds, widths = [float(row.last) for row in rows], [row.kind for row in rows], list[float]()
    if not phases:
        return [Series(name="a step", role="other", x=x, y=[row.seconds for row in rows], notes=kinds)]
    style: Style = "bar" if len(rows) <= _BARS else "area"
    if style == "bar":  # as wide as the steps that it stands for
        x, widths = [row.last - (row.steps - 1) / 2 for row in rows], [0.9 * row.steps for row in rows]
    found = []
    for phase in phases:
        y: list[float | None] = [row.phases.get(phase, 0.0) for row in rows]
        notes = kinds if phase == phases[-1] else []
        name = _NAMES.get(phase, phase)
        found.append(Series(name=name, role=phase, x=x, y=y, style=style, widths=widths, notes=notes))
    return found


def _told(rows: list[Stretch]) -> str:
    ordered = sorted(rows, key=lambda row: row.seconds)
    middle, slowest = ordered[len(ordered) // 2], ordered[-1]
    told = f"Half of the {sum(r.steps for r in rows):,} steps drawn take up to {ms(middle.seconds)}; "
    told += f"the slowest, step {slowest.last:,}, took {ms(slowest.seconds)}"
    whole = {p: sum(r.phases.get(p, 0.0) * r.steps for r in rows) for p in PHASES}
    total = sum(whole.values())
    if not total:
        return f"{told}."
    shares = ", ".join(f"{_NAMES.get(p, p)} {percent(s / total)}" for p, s in whole.items() if s)
    return f"{told}. Of all of them: {shares}."
