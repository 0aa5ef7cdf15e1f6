"""What was in use at one moment: by category, by line, by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from torchvet.snapshots.categories import OLDER, Categories
from torchvet.snapshots.lifetimes import Older
from torchvet.snapshots.places import BACKWARD, Place

_OPERATORS = 3
_LOOK_AHEAD = 400
"""Events within which a backward pass frees what its operator had saved."""


@dataclass
class Row:
    """A line of a table: bytes and blocks of one place."""

    bytes: int = 0
    blocks: int = 0
    place: Place | None = None
    category: str = ""
    note: str = ""
    sizes: dict[int, int] = field(default_factory=dict)
    operators: Counter[str] = field(default_factory=Counter)
    """Bytes by the operator that made them, where the stacks show one."""

    def add(self, size: int, operator: str = "") -> None:
        """One more block."""
        self.bytes += size
        self.blocks += 1
        self.sizes[size] = self.sizes.get(size, 0) + 1
        if operator:
            self.operators[operator] += size

    @property
    def operator(self) -> str:
        """The operators that made most of it: `linear, silu and mul`; empty where the stacks show none."""
        *others, last = [name for name, _ in self.operators.most_common(_OPERATORS)] or [""]
        return f"{', '.join(others)} and {last}" if others else last


@dataclass(frozen=True)
class Moment:
    """The blocks in use after event `at`; -1 is the beginning, the trace's length less one the end."""

    categories: Categories
    at: int

    @cached_property
    def blocks(self) -> list[int]:
        """The blocks of the recording."""
        return self.categories.lifetimes.alive(self.at)

    @cached_property
    def older(self) -> list[Older]:
        """The blocks that are older."""
        return self.categories.lifetimes.older_alive(self.at)

    @cached_property
    def category(self) -> dict[int, str]:
        """The category of every block of the recording that is in use."""
        return {start: self.categories.of(start) for start in self.blocks}

    @cached_property
    def bytes(self) -> int:
        """Bytes in use, as the program asked for them."""
        sizes = self.categories.lifetimes.trace.sizes
        return sum(sizes[s] for s in self.blocks) + sum(o.size for o in self.older)

    @cached_property
    def by_category(self) -> dict[str, int]:
        """Bytes by category, the largest first."""
        sizes = self.categories.lifetimes.trace.sizes
        named = [(self.category[s], sizes[s]) for s in self.blocks]
        return _summed(named + [(self.categories.older[o], o.size) for o in self.older])

    @cached_property
    def lines(self) -> list[Row]:
        """Bytes by line and category, the largest first; blocks that are older have no line unless torch wrote it."""
        trace, stacks = self.categories.lifetimes.trace, self.categories.stacks
        found: dict[tuple[Place | None, str, str], Row] = {}
        for start in self.blocks:
            facts = stacks[trace.stacks[start]]
            place, note = facts.place, ""
            if place is None and facts.kind == BACKWARD:
                place, note = self.forward_line(start), "backward of"
            key = (place, self.category[start], note)
            found.setdefault(key, Row(place=place, category=key[1], note=note)).add(trace.sizes[start], facts.operator)
        for block in self.older:
            place, category = stacks[block.stack].place, self.categories.older[block]
            row = found.setdefault((place, category, ""), Row(place=place, category=category))
            row.add(block.size)
        return sorted(found.values(), key=lambda r: -r.bytes)

    @cached_property
    def by_module(self) -> dict[str, int]:
        """Bytes by the innermost module, named by the line that calls it, where frames show one."""
        trace, stacks = self.categories.lifetimes.trace, self.categories.stacks
        named = [(stacks[trace.stacks[s]].module, trace.sizes[s]) for s in self.blocks]
        return {name: held for name, held in _summed(named).items() if name}

    def forward_line(self, start: int) -> Place | None:
        """The forward line whose backward made a block without Python frames, where the order of the pass shows it.

        Backward goes through the forward's operators in reverse and frees what each had saved once it is done: the
        next activation of a Python line that is freed belongs to the operator at work.
        """
        lifetimes, stacks = self.categories.lifetimes, self.categories.stacks
        run = self.categories.phases.run(start)
        if run is None or not self._in_order(run.start):
            return None
        for at in range(start + 1, min(run.end, start + _LOOK_AHEAD)):
            begun = lifetimes.begins[at]
            if 0 <= begun < run.start:
                place = stacks[lifetimes.trace.stacks[begun]].place
                if place is not None:
                    return place
        return None

    @cached_property
    def _orders(self) -> dict[int, bool]:
        return {}

    def _in_order(self, run_start: int) -> bool:
        """Whether a backward pass frees first what the forward made last, as it does where nothing is shared."""
        known = self._orders.get(run_start)
        if known is None:
            run = self.categories.phases.run(run_start)
            begins = self.categories.lifetimes.begins
            end = run.end if run is not None else run_start
            freed = [begins[at] for at in range(run_start, end) if 0 <= begins[at] < run_start]
            falling = sum(1 for a, b in pairwise(freed) if b < a)
            known = self._orders[run_start] = len(freed) >= 2 and falling >= 0.6 * (len(freed) - 1)
        return known

    @cached_property
    def largest(self) -> list[int]:
        """The blocks of the recording, largest first."""
        sizes = self.categories.lifetimes.trace.sizes
        return sorted(self.blocks, key=lambda s: -sizes[s])

    def total(self, wanted: Callable[[str], bool]) -> int:
        """Bytes of the categories that are wanted."""
        return sum(held for name, held in self.by_category.items() if wanted(name))


def _summed(named: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, held in named:
        found[name] = found.get(name, 0) + held
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


__all__ = ["OLDER", "Moment", "Row"]
