"""The time of a run's steps by phase."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from torchvet.analysis.steps import current_steps
from torchvet.charts import Chart, Series, Span, Style, kept, thinned
from torchvet.drawing.memory import STEP
from torchvet.formatting import ms, percent
from torchvet.recording.records.base import Window

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.recording import RankRecording
    from torchvet.recording.records.base import Step

PHASES = ("data", "forward", "backward", "optimizer", "other")
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
    x = [float(row.last) for row in shown]
    phases = [p for p in PHASES if any(row.phases.get(p) for row in rows)]
    style: Style = "bar" if len(shown) <= _BARS else "area"
    series = [
        Series(
            name="forward and other" if p == "other" else p,
            role=p,
            x=x,
            style=style,
            y=[row.phases.get(p, 0.0) for row in shown],
            notes=[row.kind for row in shown] if p == phases[-1] else [],
        )
        for p in phases
    ] or [Series(name="a step", role="other", x=x, y=[row.seconds for row in shown])]
    sampled = [Span(label="sampled steps", start=w.first - 0.5, end=w.last + 0.5) for w in rank.since_restart(Window)]
    notes = thinned(len(rows), len(shown), width, "records of steps")
    if sampled:
        notes.append("shaded: sampled steps, which torchvet itself makes slower")
    most = max(row.steps for row in rows)
    if most > 1:
        notes.append(f"where steps were written down together (up to {most:,}) a point is their mean")
    simulated = rank.program is not None and rank.program.simulated is not None
    if simulated:
        notes.append("it is the time of the simulation, not of a card")
    return Chart(
        id="time",
        title="Time of steps by phase",
        kind="lines",
        caption=_told(rows),
        x_title=STEP,
        unit="seconds",
        rank=rank.rank,
        series=series,
        spans=sampled,
        notes=notes,
        columns=["step", "kind", "seconds", *phases],
        rows=[[f"{r.last:,}", r.kind, ms(r.seconds), *(ms(r.phases.get(p, 0.0)) for p in phases)] for r in shown],
    )


def _told(rows: list[Stretch]) -> str:
    ordered = sorted(rows, key=lambda row: row.seconds)
    middle, slowest = ordered[len(ordered) // 2], ordered[-1]
    told = f"Half of the {sum(r.steps for r in rows):,} steps drawn take up to {ms(middle.seconds)}; "
    told += f"the slowest, step {slowest.last:,}, took {ms(slowest.seconds)}"
    whole = {p: sum(r.phases.get(p, 0.0) * r.steps for r in rows) for p in PHASES}
    total = sum(whole.values())
    if not total:
        return f"{told}."
    shares = ", ".join(
        f"{'forward and other' if p == 'other' else p} {percent(s / total)}" for p, s in whole.items() if s
    )
    return f"{told}. Of all of them: {shares}."
