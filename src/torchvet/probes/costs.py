"""Accounts for what looking costs the program, so that budgets hold and the report can say it."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from torchvet.probes.schedule import Schedule

OPERATOR_SECONDS = 12e-6
"""What noting one operator costs, roughly."""
_ENOUGH = 3
"""Plain steps from which on a step's usual time is known."""

KINDS = ("windows", "censuses", "graphs", "events", "boundaries", "end")
"""Windows opened and closed, and their steps' excess; names counted; autograd graphs followed between boundaries;
optimizers and batches looked at; what is left of the work at boundaries; what is left of the last look."""
_CHARGED = ("windows", "censuses")
"""What comes out of the schedule's share. Graphs have a budget of their own; the rest is the same at every step, and no
schedule could help it."""


class Costs:
    """Seconds by kind of look, each counted once: `censuses` within a boundary are not its own.

    What sampled steps cost is their excess over plain ones, once there are some.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self._depth = 0
        self._owner = 0
        self._nested = 0.0
        self._looked = 0.0
        self._plain: deque[float] = deque(maxlen=64)
        self._waiting: list[tuple[float, float]] = []
        """Sampled steps not accounted for yet: their seconds, and what their operators should have cost."""
        self._last = time.perf_counter()

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        """Everything within is a look of this kind; looks within looks count as their own kind only.

        Of looks in several threads at once those of the first are accounted for.
        """
        mine = threading.get_ident()
        if self._depth and self._owner != mine:
            yield
            return
        self._owner = mine
        start, outer = time.perf_counter(), self._nested
        self._nested = 0.0
        self._depth += 1
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            own = max(0.0, spent - self._nested)
            self.seconds[kind] += own
            if kind in _CHARGED:
                self._schedule.spend(own)
            self._nested = outer + spent
            self._depth -= 1
            if not self._depth:
                self._nested = 0.0
                self._looked += spent

    def step(self) -> float:
        """Seconds that the program has taken since the last call, looks left out."""
        now = time.perf_counter()
        seconds = now - self._last - self._looked
        self._last, self._looked = now, 0.0
        return max(0.0, seconds)

    def plain_step(self, seconds: float) -> None:
        """A step passed in which nothing was noted."""
        self._plain.append(seconds)
        if self._waiting and len(self._plain) >= _ENOUGH:
            self.settle()

    def sampled_step(self, seconds: float, operators: int) -> None:
        """A step passed in which that many operators were noted."""
        self._waiting.append((seconds, operators * OPERATOR_SECONDS))
        if len(self._plain) >= _ENOUGH:
            self.settle(free=False)

    def settle(self, free: bool = True) -> None:
        """Account for the sampled steps that wait for it; those before any plain one are `free` of the budget.

        Steps differ by themselves (warming up, the length of a text): what their operators cost bounds the excess.
        """
        usual = statistics.median(self._plain) if self._plain else None
        for seconds, estimate in self._waiting:
            excess = estimate if usual is None else max(0.0, min(seconds - usual, 2 * estimate))
            self.seconds["windows"] += excess
            if not free:
                self._schedule.spend(excess)
        self._waiting.clear()

    def restart(self) -> None:
        """From now on steps are something else."""
        self.settle()
        self._plain.clear()
