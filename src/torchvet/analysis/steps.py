"""Which steps lie between two ticks: what a rate is a rate of."""

from __future__ import annotations

from collections import defaultdict

from torchvet.analysis.growth_series import FOLLOWS, Points, misfit, size_of
from torchvet.recording.reader import RankRecording, restarts
from torchvet.recording.records.base import Step, StepKind

_TRAINED: tuple[StepKind, ...] = ("training", "backward")
"""Optimizer steps, and backward calls whose weights the program updates by hand."""


def current_steps(rank: RankRecording) -> list[Step]:
    """Step records since the clock last started anew (a stronger step signal appeared)."""
    steps = rank.all(Step)
    start = 0
    for index in range(1, len(steps)):
        # For example, backward calls were counted until the first optimizer was seen.
        if restarts(steps[index - 1], steps[index]):
            start = index
    return steps[start:]


def evaluated_before(rank: RankRecording) -> int:
    """Evaluation steps of before the steps were last counted anew: those were no parts of training steps."""
    steps = rank.all(Step)
    # What is counted anew is training; the evaluation of before was one.
    return sum(s.count for s in steps[: len(steps) - len(current_steps(rank))] if s.kind == "evaluation")


def steps_until(rank: RankRecording, tick: int, kind: StepKind) -> int:
    """How many steps of a kind had ended by a tick."""
    kinds = _TRAINED if kind in _TRAINED else (kind,)
    return sum(_ended_between(s, 0, tick) for s in current_steps(rank) if s.kind in kinds)


def _ended_between(step: Step, first: int, last: int) -> int:
    """How many of a record's steps ended after the tick `first` and by `last`: a record may be of several."""
    return max(0, min(step.n, last) - max(step.n - step.count, first))


def longest_evaluation(rank: RankRecording) -> int:
    """The most evaluation steps in a row."""
    most = now = 0
    for step in current_steps(rank):
        now = now + step.count if step.kind == "evaluation" else 0
        most = max(most, now)
    return most


def training_stretches(rank: RankRecording) -> list[tuple[int, int]]:
    """The first and the last tick of each stretch of training steps between two evaluations, or an evaluation and an
    end of the run."""
    found: list[tuple[int, int]] = []
    before: StepKind | None = None
    for step in current_steps(rank):
        first = step.n - step.count + 1
        if step.kind != "evaluation":
            found.append((found.pop()[0] if found and before != "evaluation" else first, step.n))
        before = step.kind
    return found


def steps_between(rank: RankRecording, first: int, last: int) -> tuple[StepKind, int]:
    """The kind of step that a rate goes by, and how many of it lie between two ticks.

    Training steps where there are any between the two, else whatever there is. Backward calls count as such among
    optimizer steps only where the program updates weights by hand: they are training steps, too.
    """
    counts: dict[StepKind, int] = defaultdict(int)
    for step in current_steps(rank):
        # A step counts with its end: the one that ends at `first` was over when the look came.
        if ended := _ended_between(step, first, last):
            counts[step.kind] += ended
    # `watch.step()` is the program's own word for what a step is.
    if counts.get("manual"):
        return "manual", counts["manual"]
    trained, by_hand = (counts.get(kind, 0) for kind in _TRAINED)
    if trained or by_hand:
        return "training" if trained >= by_hand else "backward", trained + by_hand
    if not counts:
        # No record in between, as in a recording cut short: ticks are the best that is left.
        return "training", max(1, last - first)
    kind = max(counts, key=lambda k: counts[k])
    return kind, counts[kind]


def steps_of_bursts(rank: RankRecording, run: Points, kind: StepKind) -> float | None:
    """How many steps of `kind` the rise stands for where it follows the evaluation steps and not those; else None.

    An evaluation after every epoch stores in bursts: between two looks there may be three of them or four, whatever
    the training steps between. What evaluation steps stored is spread over the run at the run's own proportion.
    """
    whole = steps_until(rank, current_steps(rank)[-1].n, "evaluation") if current_steps(rank) else 0
    # Two points lie on any line.
    if kind == "evaluation" or not whole or len(run) < 3:
        return None
    sizes = [float(size_of(h)) for _, h in run]
    trained = [float(steps_until(rank, tick, kind)) for tick, _ in run]
    evaluated = [float(steps_until(rank, tick, "evaluation")) for tick, _ in run]
    # Close to a line over evaluation steps, and clearly closer than over training steps: both rise together.
    if not misfit(evaluated, sizes) < min(FOLLOWS, misfit(trained, sizes) / 2):
        return None
    of_run = steps_until(rank, current_steps(rank)[-1].n, kind)
    return (evaluated[-1] - evaluated[0]) * of_run / whole
