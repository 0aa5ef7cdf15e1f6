"""Where forward, backward and optimizer passes begin and end, and where a step does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

from torchvet.readers.snapshot import Annotation
from torchvet.snapshots.lifetimes import Lifetimes
from torchvet.snapshots.places import BACKWARD, FORWARD, OPTIMIZER, USER

_FEWEST = 3
"""Repetitions that make a period."""
_FEW = 4
"""Allocations of a batch that another thread fetches."""


@dataclass(frozen=True)
class Run:
    """Consecutive allocations of one phase; `end` is the next allocation of another, or the trace's length."""

    kind: str
    start: int
    end: int
    last: int


@dataclass(frozen=True)
class Phases:
    """The runs of a trace in order, and its steps."""

    lifetimes: Lifetimes
    kinds: list[str]
    """The kind of every stack, by its number."""
    annotations: tuple[Annotation, ...] = field(default=())

    def kind(self, start: int) -> str:
        """The phase that a block was made in, by its own stack."""
        return self.kinds[self.lifetimes.trace.stacks[start]]

    @cached_property
    def runs(self) -> list[Run]:
        """Forward and the user's own code are one phase: they alternate within a forward pass. A thread that fetches
        the next batch meanwhile does not end a backward pass."""
        found: list[Run] = []
        for run in self._raw_runs():
            within = len(found) >= 2 and (found[-2].kind, found[-1].kind, run.kind) == (BACKWARD, FORWARD, BACKWARD)
            if within and self._aside(found[-1], run):
                del found[-1]
                found[-1] = Run(BACKWARD, found[-1].start, run.end, run.last)
            else:
                found.append(run)
        return found

    def _raw_runs(self) -> list[Run]:
        kinds, stacks, starts = self.kinds, self.lifetimes.trace.stacks, self.lifetimes.starts
        # A loss or a mask between two modules would otherwise cut a forward pass in pieces.
        merged = [FORWARD if k == USER else k for k in kinds]
        found: list[tuple[str, int, int]] = []
        for kind, group in groupby(starts, key=lambda at: merged[stacks[at]]):
            members = list(group)
            found.append((kind, members[0], members[-1]))
        ends = [*(start for _, start, _ in found[1:]), len(self.lifetimes.trace)][: len(found)]
        return [Run(kind, start, end, last) for (kind, start, last), end in zip(found, ends, strict=True)]

    def _aside(self, between: Run, after: Run) -> bool:
        """Whether a few allocations between two stretches of backward are no forward pass: no module made them, and the
        backward that follows frees none of them."""
        starts, let_go = self.lifetimes.starts, self.lifetimes.let_go
        members = starts[bisect_left(starts, between.start) : bisect_right(starts, between.last)]
        return len(members) <= _FEW and all(
            self.kind(s) == USER and not after.start <= let_go[s] < after.end for s in members
        )

    @cached_property
    def _run_starts(self) -> list[int]:
        return [r.start for r in self.runs]

    def run(self, at: int) -> Run | None:
        """The run that an event falls into; None before the first allocation."""
        place = bisect_right(self._run_starts, at) - 1
        return self.runs[place] if place >= 0 else None

    @cached_property
    def backwards(self) -> list[Run]:
        """The backward passes."""
        return [r for r in self.runs if r.kind == BACKWARD]

    @cached_property
    def _backward_starts(self) -> list[int]:
        return [r.start for r in self.backwards]

    def next_backward(self, at: int) -> Run | None:
        """The first backward pass that begins after an event."""
        place = bisect_right(self._backward_starts, at)
        return self.backwards[place] if place < len(self.backwards) else None

    @cached_property
    def boundaries(self) -> list[int]:
        """The events before which a step has ended, in order; see `told_by`."""
        return self._steps[1]

    @property
    def told_by(self) -> str:
        """What steps are known by."""
        return self._steps[0]

    @cached_property
    def _steps(self) -> tuple[str, list[int]]:
        # torch writes annotations from 2.5 on; without them the phases tell, and where there are none, what repeats.
        marks = [a.before for a in self.annotations if a.stage == "END" and a.name.startswith("Optimizer.step")]
        marks = sorted({m for m in marks if 0 < m <= len(self.lifetimes.trace)})
        if marks:
            return "the optimizer's annotations", marks
        for kind, told in ((OPTIMIZER, "allocations in optimizer steps"), (BACKWARD, "backward passes")):
            ends = [r.end for r in self.runs if r.kind == kind]
            if ends:
                return told, ends
        found = self._periods()
        return ("the period of the allocations" if found else "", found)

    def _periods(self) -> list[int]:
        """Starts of repetitions: a line outside all modules that comes again at even distances over most of the trace.

        Within a model the layers repeat too, and are no steps.
        """
        places: dict[int, list[int]] = defaultdict(list)
        stacks = self.lifetimes.trace.stacks
        for number, at in enumerate(self.lifetimes.starts):
            places[stacks[at]].append(number)
        whole = len(self.lifetimes.starts)
        best: list[int] = []
        for stack, found in places.items():
            if self.kinds[stack] != USER or len(found) < _FEWEST + 1 or found[-1] - found[0] < 0.6 * whole:
                continue
            if _is_even(found) and (not best or len(found) < len(best)):
                best = found
        return [self.lifetimes.starts[n] for n in best]

    def step(self, at: int) -> int:
        """The number of the step that an event belongs to, from 0."""
        return bisect_right(self.boundaries, at)

    def crossed(self, start: int, end: int) -> int:
        """Step boundaries within a block's life."""
        return bisect_left(self.boundaries, end) - bisect_right(self.boundaries, start)


def _is_even(found: list[int]) -> bool:
    """Whether numbers lie at about the same distance from each other, but for one in ten."""
    gaps = [b - a for a, b in pairwise(found)]
    usual = sorted(gaps)[len(gaps) // 2]
    return usual >= 2 and sum(abs(g - usual) <= usual // 10 for g in gaps) >= 0.9 * len(gaps)
