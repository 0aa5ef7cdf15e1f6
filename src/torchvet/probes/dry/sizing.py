"""The program's own steps in a dry run, then the steps that are tried with one thing changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torchvet.probes.dry import trials
from torchvet.probes.dry.peak import modules_at_peak
from torchvet.probes.dry.waiting import Waiting
from torchvet.probes.memory.out_of_memory import write_snapshot
from torchvet.probes.session.step_log import StepsReached
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.dry import DryOptimizer, DrySize
from torchvet.simulate.allocation import memory, workspaces
from torchvet.simulate.dry import limits, values
from torchvet.simulate.dry.batches import batches
from torchvet.simulate.dry.shapes import arithmetic
from torchvet.simulate.tensors import SimulatedTensor

if TYPE_CHECKING:
    from torchvet.probes.dry.observer import DryObserver

STEPS = 3
"""Training steps that are enough: the first makes the optimizer's state, the second has it beside activations."""
_BACKWARDS = 10
"""Backward passes that are enough where no optimizer of torch's was made."""
SECONDS = 15.0
"""What trying may take, of the processor's time: how busy the machine is decides nothing."""
_HANGS = 120.0
"""Seconds after which a step that was changed is not waited for."""
_SNAPSHOT = "dry.pickle"


class Sizing:
    """Hears of every step boundary."""

    seconds = SECONDS

    def __init__(self, observer: DryObserver) -> None:
        self._observer = observer
        self._done = False
        self._began = 0.0
        self._operations = (0, 0)
        self._queue: Iterator[trials.Trial] = iter(())
        self.trial: trials.Trial | None = None
        self.size: DrySize | None = None
        self.failed: list[str] = []
        """Trials that could not be made, and why."""
        self.lost = 0
        """Events of the allocator that were forgotten."""
        self._silent = False
        self.late = False
        """Whether not all that was to be tried was."""
        self.waiting = Waiting(self._stop)
        # Module-level in `simulate.dry`: the simulated device knows nothing of probes, and calls what is set
        # here.
        batches.called = self._called
        values.told[:] = [self.waiting.read]

    @property
    def trying(self) -> bool:
        """Whether the program's own steps are over."""
        return self._done

    def boundary(self, kind: StepKind) -> bool:
        """A step ended: whether all has been seen."""
        # A running total at this boundary and at the one before: a step's own is the difference.
        self._operations = (self._operations[1], arithmetic.operations)
        # Evaluations and forward passes go on while a program waits; a training step shows that it does not.
        if kind not in ("forward", "evaluation"):
            self.waiting.stepped()
        # The program's own steps are over: each boundary from here on ends a step of a trial.
        if self._done:
            return self._next() if self.trial is None or self._judged(self.trial) else False
        if not self._enough(kind):
            batches.begin(None)
            return False
        self._close(kind)
        return kind != "training" or self._next()

    def _enough(self, kind: StepKind) -> bool:
        clock = self._observer.clock
        wanted: int | None = self._observer.options.steps
        # While an optimizer has yet to step the count is of parts of steps.
        if wanted is not None and not clock.provisional:
            return clock.counts.get(clock.level, 0) >= wanted
        if kind == "training":
            return clock.counts.get("training", 0) >= STEPS
        # With an optimizer that never steps the backwards may all be one accumulation.
        return kind == "backward" and not self._observer.made and clock.counts.get("backward", 0) >= _BACKWARDS

    def _judged(self, trial: trials.Trial) -> bool:
        """Whether a trial is over: a step that began before it took effect does not count."""
        # None for a step that began before the change, or whose batch had other rows.
        record = trial.judge(self._operations[1] - self._operations[0])
        if record is None and not trial.over and trial.steps_left:
            trial.steps_left -= 1
            trial.begin()
            return False
        trial.undo()
        if record is not None:
            self._observer.write(record)
        elif not trial.over:
            self.failed.append(trial.failed())
        return True

    def _next(self) -> bool:
        """Begin the next trial. True where there is none."""
        # A trial is begun only if one as long as the last would still end in time.
        last = 0.0 if self.trial is None else time.process_time() - self.trial.began
        self.trial = None
        if time.process_time() - self._began + last > SECONDS:
            self.late = True
            return True
        self.trial = next(self._queue, None)
        if self.trial is None:
            return True
        # At the first trial, and for good: the program's own output is complete by then.
        if not self._silent:
            self._silent = True
            _silence()
        self.trial.start()
        return False

    def _called(self) -> None:
        self.waiting.passed()
        self._in_time()

    def _stop(self) -> None:
        """The program waits for a number that never comes."""
        raise StepsReached(self._observer.clock.n)

    def _in_time(self) -> None:
        """A program that catches what a trial has broken may never come to the end of a step."""
        # Asked at each call of a model as well, since a step that was broken has no boundary.
        trial = self.trial
        if trial is None:
            return
        if time.process_time() - trial.began > SECONDS or time.perf_counter() - trial.began_at > _HANGS:
            self.failed.append(trial.failed())
            self.trial = None
            # The trial cannot be taken back within a step that goes on: the run ends, and the report
            # stands.
            self._stop()

    def end(self) -> None:
        """The program has ended, in its own steps or in a trial."""
        values.told.clear()
        clock = self._observer.clock
        if not self._done:
            # What waits before the first step was not sized.
            # A loop that waits before any step has only a half-built program to size.
            if self.waiting.ended is None or "training" in clock.counts:
                self._close(clock.level)
        elif self.trial is not None:
            self.failed.append(self.trial.failed())

    def _close(self, kind: StepKind) -> None:
        """The program's own steps are over: say what they took, and keep the history."""
        self._done = True
        held = memory.everyone()[0]
        high = limits.high_of()
        if not high.allocated:
            return
        rows = batches.rows_seen()
        batches.own = rows[0] if rows else 0
        # cuBLAS's workspaces are torch's own and would be credited to the module that multiplied first.
        ours = workspaces.addresses(0)
        events = held.history.events
        self.lost = held.history.noted - len(events)
        parts = modules_at_peak(events, self.lost, self._observer.known.live_roots(), ours)
        size = DrySize(
            steps=self._observer.clock.counts.get(kind, 0), kind=kind, allocated=high.allocated,
            reserved=high.reserved, total=held.total, context=held.context, ran_out=high.ran_out,
            batch=batches.own, arithmetic=self._operations[1] - self._operations[0],
            seconds=time.perf_counter() - self._observer.started, snapshot=self._snapshot(),
            workspaces=ours,
        )  # fmt: skip
        self.size = size
        for record in (size, *parts, *self._optimizers()):
            self._observer.write(record)
        self._began = time.process_time()
        self._queue = trials.all_of(self._observer, size, rows)

    def _snapshot(self) -> str | None:
        path = Path(self._observer.options.directory) / _SNAPSHOT
        write_snapshot(path)
        # The events that follow are of trials and no part of the program's history.
        # Also the observer of out-of-memory errors: trials run into them on purpose.
        memory.observers.clear()
        for held in memory.everyone():
            held.history.stop()
        return str(path)

    def _optimizers(self) -> Iterator[Record]:
        for optimizer in self._observer.known.live_optimizers():
            yield _dry_optimizer(optimizer, self._observer.made.get(id(optimizer)))


def _dry_optimizer(optimizer: torch.optim.Optimizer, place: Place | None) -> DryOptimizer:
    states = [(p, _tensors(s)) for p, s in optimizer.state.items() if isinstance(s, dict)]
    # Moments are as large as their parameter; counters of steps are not.
    # `dict(like)` below then has each such parameter once.
    like = [(p, t) for p, tensors in states for t in tensors if t.numel() == p.numel()]
    moments = [t for _, t in like if t.dim()]
    elements = sum(p.numel() for p in dict(like))
    return DryOptimizer(
        name=type(optimizer).__name__,
        place=place,
        bytes=sum(t.numel() * t.itemsize for _, tensors in states for t in tensors),
        parameters=len(states),
        elements=elements,
        tensors=round(sum(t.numel() for t in moments) / elements) if elements else 0,
        itemsize=max((t.itemsize for t in moments), default=0),
        fused=any(bool(g.get("fused")) for g in optimizer.param_groups),
    )


def _silence() -> None:
    """What the program prints of steps that torchvet has changed is nobody's result."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The descriptors themselves: C++ and child processes write past `sys.stdout`.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    return [t for t in state.values() if isinstance(t, SimulatedTensor)]
