"""Accounts for what looking costs the program, so that budgets hold and the report can say it."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from torchvet.probes.base.schedule import Schedule

OPERATOR_SECONDS = 12e-6
"""What noting one operator costs at least, roughly: by it a window is bounded before any was measured."""
ENTERING = 5e-6
"""What an operator takes to reach the code that notes it, roughly."""
# A median of fewer is one of the slow first steps.
_ENOUGH = 3
"""Plain steps from which on a step's usual time is known."""

KINDS = ("windows", "censuses", "graphs", "events", "calls", "boundaries", "end")
"""Windows opened and closed, and their steps' excess; names counted; autograd graphs followed between boundaries;
optimizers and batches looked at; calls of frozen parts compared; what is left of the work at boundaries; what is left
of the last look."""
EACH = "calls"
"""The kind of looks that are timed in all steps."""
_CHARGED = ("windows", "censuses")
"""What comes out of the schedule's share. Graphs have a budget of their own; the rest is the same at every step, and no
schedule could help it."""
_BUDGETED = frozenset([*_CHARGED, "graphs"])
"""What a budget is kept of: by the work of the thread that looks. By the clock a busy machine's other programs would
spend it, and what is then not looked at would be silence."""


Keep = Callable[[str, BaseException], bool]


class Costs:
    """Seconds by kind of look, each counted once: `censuses` within a boundary are not its own. `seconds` are by the
    clock, what the program waited for; `graph_work` is what following graphs took of this thread's own work.

    What sampled steps cost is the work of noting their operators, which is measured, and what it takes to enter that
    work, by their excess over plain steps.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.graph_work = 0.0
        self.stands_for = 1
        """How many steps the events of this one stand for, those of the others not being timed."""
        self._depth = 0
        self._owner = 0
        self._nested = 0.0
        self._nested_work = 0.0
        # What looks took since the last call of `step`: the program's own step must not contain them.
        self._looked = 0.0
        # Of the last 64 only: a program's steps get slower or faster as it runs.
        self._plain: deque[float] = deque(maxlen=64)
        self._waiting: list[tuple[float, float, float]] = []
        """Sampled steps not accounted for yet: their seconds, those of noting their operators, and what it should have
        taken to enter that."""
        self.sampled = 0.0
        """Seconds that the sampled step accounted for last has cost."""
        self._last = time.perf_counter()

    def of(self, kind: str) -> Look:
        """Everything within is a look of this kind; looks within looks count as their own kind only.

        Of looks in several threads at once those of the first are accounted for.
        """
        return Look(self, kind)

    def timed(self, kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, of this kind."""

        def run(*given: Any) -> Any:
            with Look(self, kind):
                return work(*given)

        return run

    def busy(self, thread: int) -> bool:
        """Whether a look is under way on a thread; asked from another."""
        return self._depth > 0 and self._owner == thread

    def step(self) -> float:
        """Seconds that the program has taken since the last call, looks left out."""
        now = time.perf_counter()
        seconds = now - self._last - self._looked
        self._last, self._looked = now, 0.0
        return max(0.0, seconds)

    def plain_step(self, seconds: float) -> None:
        """A step passed in which nothing was noted."""
        self._plain.append(seconds)
        # The windows come early, before any plain step is known; their excess can be told only now.
        if self._waiting and len(self._plain) >= _ENOUGH:
            self.settle()

    def looked(self) -> float:
        """Seconds of looks since the last call of `step`."""
        return self._looked

    def sampled_step(self, seconds: float, operators: int, noting: float) -> None:
        """A step passed in which that many operators were noted. That took `noting` seconds of this thread's work."""
        self._waiting.append((seconds, noting, operators * ENTERING))
        if len(self._plain) >= _ENOUGH:
            # Later windows are charged to the schedule at once, so that it opens fewer.
            self.settle(free=False)

    def settle(self, free: bool = True) -> None:
        """Account for the sampled steps that wait for it; those before any plain one are `free` of the budget.

        Steps differ by themselves (warming up, the length of a text): what was measured bounds the excess.
        """
        usual = statistics.median(self._plain) if self._plain else None
        for seconds, noting, entering in self._waiting:
            # Twice the estimate at most: a long batch or a first compilation in a sampled step is no cost
            # of torchvet's.
            rest = entering if usual is None else max(0.0, min(seconds - noting - usual, 2 * entering))
            self.sampled = noting + rest
            self.seconds["windows"] += self.sampled
            if free:
                self._schedule.given += self.sampled
            else:
                self._schedule.spend(self.sampled)
        # Also where a step's kind changes: seconds of an evaluation's step say nothing of training.
        self._waiting.clear()

    def restart(self) -> None:
        """From now on steps are something else."""
        self.settle()
        self._plain.clear()


class Pausing(Protocol):
    """Whether the calling thread keeps from the ledger what it makes."""

    on: bool


class Look:
    """Work of torchvet's own that is accounted for; see `Costs.of`. With `keep` it is guarded, too: `keep` gets
    the work that failed (`what`) and its error, and says whether the failure is kept from the program. With a
    `pausing` nothing that is made within is noted. It happens several times a step: hence a class, no generators, all
    in one place.
    """

    __slots__ = (
        "_before", "_budgeted", "_costs", "_keep", "_kind", "_outer", "_outer_work", "_pausing", "_start", "_times",
        "_what", "_work",
    )  # fmt: skip

    def __init__(
        self, costs: Costs, kind: str, keep: Keep | None = None, what: str = "", pausing: Pausing | None = None
    ) -> None:
        self._costs, self._kind, self._keep, self._what, self._pausing = costs, kind, keep, what, pausing
        self._budgeted = kind in _BUDGETED

    def __enter__(self) -> None:
        costs, pausing = self._costs, self._pausing
        if pausing is not None:
            self._before, pausing.on = pausing.on, True
        mine = threading.get_ident()
        # A look of another thread is under way: seconds that both take at once would count twice.
        # 0.0 marks a look that is not accounted for; `__exit__` reads it.
        if costs._depth and costs._owner != mine:
            self._start = 0.0
            return
        costs._owner = mine
        costs._depth += 1
        self._times = 1 if self._budgeted or self._kind == EACH else costs.stands_for
        # Looks nest. Each sees only what was nested in it, and hands its whole time on to the one outside.
        self._outer, costs._nested = costs._nested, 0.0
        if self._budgeted:
            self._outer_work, costs._nested_work = costs._nested_work, 0.0
            # Read only for kinds that have a budget: most looks have none, and happen several times a
            # step.
            self._work = time.thread_time()
        self._start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        costs = self._costs
        if self._start:
            spent = time.perf_counter() - self._start
            # The two clocks are read one after the other, so a very short look may come out below zero.
            own = max(0.0, spent - costs._nested) * self._times
            costs.seconds[self._kind] += own
            costs._looked += own
            if self._budgeted:
                self._charge()
            costs._depth -= 1
            if costs._depth:
                costs._nested = self._outer + spent
            else:
                # The outermost look has ended. A failed inner one may have left a rest.
                costs._nested = costs._nested_work = 0.0
        if self._pausing is not None:
            self._pausing.on = self._before
        # True swallows the error, which `keep` alone decides: exits and interrupts of the program pass.
        return error is not None and self._keep is not None and self._keep(self._what, error)

    def _charge(self) -> None:
        """Take the work out of its budget, but for that of budgeted looks within."""
        costs = self._costs
        work = time.thread_time() - self._work
        own = max(0.0, work - costs._nested_work)
        costs._nested_work = self._outer_work + work
        if self._kind == "graphs":
            costs.graph_work += own
        else:
            costs._schedule.spend(own)
