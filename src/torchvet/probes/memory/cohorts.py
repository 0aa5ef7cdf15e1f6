"""Keeps the storages of each window in view, to see which are alive ever later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torchvet.probes.base.ledger import Birth, sum_by_site
from torchvet.recording.records.base import Survivors

_YOUNGEST = 2
"""Steps after a window's end at which a storage that lives on is a survivor: the variables have been bound anew."""


@dataclass
class Cohort:
    """The storages of one window that were alive at its end; `steps` is the number of steps that it covered."""

    window: int
    end: int
    steps: int
    births: list[Birth]
    next_check: int = field(default=0)
    survived: int = 0


class Cohorts:
    """All cohorts; checks them at ages 2, 4, 8, … steps."""

    def __init__(self) -> None:
        self._all: list[Cohort] = []

    def add(self, cohort: Cohort) -> None:
        """Follow a window's storages."""
        cohort.next_check = cohort.end + _YOUNGEST
        self._all.append(cohort)

    def due(self, tick: int) -> bool:
        """Whether some cohort is to be checked at this boundary."""
        return any(tick >= c.next_check and c.births for c in self._all)

    def check(self, tick: int, known: Callable[[], dict[int, object]], everything: bool = False) -> list[Survivors]:
        """Check the cohorts that are due. Storages that became known memory (optimizer state) are dropped."""
        found = []
        keys: dict[int, object] | None = None
        for cohort in self._all:
            # Not even at the end is one judged that is too young: its storages may be this step's
            # variables.
            if not cohort.births or not (everything or tick >= cohort.next_check) or tick < cohort.end + _YOUNGEST:
                continue
            # Asked once for all cohorts: going through all parameters takes time.
            keys = known() if keys is None else keys
            cohort.births = [b for b in cohort.births if b.died is None and b.key not in keys]
            cohort.survived = sum(b.nbytes for b in cohort.births)
            # Its age doubles until the next check.
            cohort.next_check = tick + max(_YOUNGEST, tick - cohort.end)
            alive, size = len(cohort.births), cohort.survived
            record = Survivors(window=cohort.window, tick=tick, steps=cohort.steps, bytes=size, storages=alive)
            record.sites, record.final = sum_by_site(cohort.births, 6), everything
            found.append(record)
        return found

    def suspicious(self) -> bool:
        """Storages of two windows live on: something may be growing."""
        # What a program makes once and keeps is of one window; what every step keeps is of all of them.
        return sum(c.survived > 0 for c in self._all) >= 2

    def followed(self, tick: int) -> list[int]:
        """The windows, in their order, whose storages are old enough to be survivors."""
        return [c.window for c in self._all if tick >= c.end + _YOUNGEST]

    def forget(self) -> None:
        """Start anew."""
        self._all.clear()
