"""Tells the clock of what threads do, and lets one of them at a time look at what its step has left.

While one thread looks the others go on: their events are not heard, but their steps are counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torchvet.probes.base.clock import StepClock, ThreadSteps
from torchvet.probes.internals import private
from torchvet.probes.session.step_log import StepLog
from torchvet.recording.records.base import StepKind
from torchvet.recording.records.training import Unwatched


class Boundary(NamedTuple):
    """A step boundary as it was when it was passed: other threads pass theirs meanwhile."""

    kind: StepKind
    tick: int
    steps: int
    restarted: bool
    era: int
    """How often steps had been counted anew by then."""


class Stepping:
    """The steps of all threads."""

    def __init__(self, clock: StepClock, log: StepLog) -> None:
        self._clock = clock
        self._log = log
        # Held for arithmetic only, and never while something looks.
        self._counting = threading.RLock()
        self._turn = threading.Lock()
        self.looking = 0
        """The thread that looks; 0 where none does."""
        self._in_optimizer: set[int] = set()
        self._plain_backward_seen = False
        self._era = 0
        self._restarted = False
        """Whether steps were counted anew while another thread looked."""

    def take_turn(self, passed: Boundary | None = None) -> bool:
        """Whether this thread may look: no other does until it calls `end_turn`. Else a boundary is counted."""
        # A thread of the program never waits for torchvet's look in another.
        if self._turn.acquire(blocking=False):
            self.looking = threading.get_ident()
            return True
        self.count(passed)
        return False

    def end_turn(self) -> None:
        """The look is over."""
        self.looking = 0
        self._turn.release()

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Both. Not for what happens in every step: a generator takes longer than all that a plain step looks at."""
        mine = self.take_turn()
        try:
            yield mine
        finally:
            if mine:
                self.end_turn()

    def end(self) -> None:
        """Nothing is heard any more."""
        # With a thread named as looking all others count aside, and this one hears nothing either.
        self.looking = threading.get_ident()

    def passed(self, ask: Callable[..., StepKind | None], *told: Any) -> Boundary | None:
        """Tell the clock of an event: the boundary that it makes, if it makes one."""
        clock = self._clock
        with self._counting:
            kind = ask(*told)
            if kind is None:
                return None
            # A boundary of another thread that was passed before is of the series before.
            self._era += clock.restarted
            return Boundary(kind, clock.n, clock.steps, clock.restarted, self._era)

    def count(self, passed: Boundary | None) -> None:
        """Note steps that nothing is looked at for."""
        if passed is None:
            return
        with self._counting:
            # First what belongs to the old count.
            if passed.restarted:
                self._log.flush()
                self._restarted = True
            # Where steps were counted anew meanwhile, its number belongs to the series before.
            if passed.era == self._era:
                self._log.count(passed.tick, passed.kind, passed.steps)
            if passed.restarted:  # a line of its own tells readers
                self._log.flush()

    def resumed(self, passed: Boundary) -> Boundary:
        """The boundary of a thread whose turn it is, which hears now of what was counted aside."""
        # A look that was under way missed it: the next one hears of it.
        restarted, self._restarted = self._restarted, False
        return passed._replace(restarted=True) if restarted else passed

    def write(self, passed: Boundary, memory: tuple[int, int] | None) -> None:
        """Note steps, with a line in the recording if it is time for one."""
        with self._counting:
            if passed.era == self._era:
                self._log.boundary(passed.tick, passed.kind, passed.steps, memory)

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer's step is under way on this thread."""
        return threading.get_ident() in self._in_optimizer

    def optimizer_starts(self) -> None:
        """An optimizer's step begins on this thread."""
        self._in_optimizer.add(threading.get_ident())

    def optimizer_ended(self, key: int, first: int = 0) -> Boundary | None:
        """It ended. Within a backward pass, called by a hook, it is no moment to look: the pass ends the step."""
        thread = threading.get_ident()
        self._in_optimizer.discard(thread)
        # Frames of the engine are on the stack: no census could see the loop's variables in order.
        if within_backward():
            self._clock.optimizer_stepped_within()
            return None
        return self.passed(self._clock.optimizer_stepped, key, thread, first)

    def again(self, steps: ThreadSteps, key: int, first: int) -> Boundary | None:
        """An optimizer of this thread's steady steps has stepped: the boundary that this makes, if it makes one."""
        clock = self._clock
        with self._counting:
            ended = clock.optimizer_stepped_again(steps, key, first)
            return Boundary("training", clock.n, 1, False, self._era) if ended else None

    def backward_ended(self, is_grad: bool) -> Boundary | None:
        """A backward pass ended on this thread."""
        self._plain_backward_seen = self._plain_backward_seen or not is_grad
        thread = threading.get_ident()
        if thread in self._in_optimizer:  # a closure: the optimizer's step is the program's
            self._clock.busy()
            return None
        # `autograd.grad` makes steps only in programs that never call `backward`.
        return self.passed(self._clock.backward_ended, thread, is_grad and self._plain_backward_seen)

    def unchecked(self) -> Iterator[Unwatched]:
        """Backward calls that belong to no step."""
        if self._clock.outside_steps:
            yield Unwatched(kind="backward", count=self._clock.outside_steps, of=self._clock.main_steps)

    def heard_elsewhere(self) -> bool:
        """Whether what happens on this thread is not heard because another looks."""
        return self.looking not in (0, threading.get_ident())


def first_of(optimizer: Any) -> int:
    """The identity of the first of an optimizer's parameters; 0 where it has none."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return id(parameter)
    return 0


def within_backward() -> bool:
    """Whether this thread runs a backward pass; where torch does not say, steps are counted as if it did not."""
    try:
        return bool(private.graph_task() != -1)
    except private.LacksName:
        return False
