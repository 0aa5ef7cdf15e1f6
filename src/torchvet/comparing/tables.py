"""Amounts by name on two sides, and their differences.

Amounts are compared, not sets of names: a leak on a line that was there before is a line whose bytes rose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Unit = Literal["bytes", "bytes per step", "seconds", "seconds per step", "steps", "findings"]


class Note(msgspec.Struct, frozen=True):
    """Something that could not be compared, or is doubtful, and why."""

    check: str
    reason: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts of one unit by name. `total` is what they are parts of, None where they do not add up to anything.

    `gates` says that the total is what a gate goes by: it is repeatable, or all that there is.
    """

    title: str
    unit: Unit
    rows: dict[str, float] = {}
    total: float | None = None
    gates: bool = False


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two: what kind of artefact, where it is, and its tables by title."""

    kind: str
    path: str
    tables: list[Table]
    notes: list[Note] = []
    """What makes its amounts doubtful."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One name's amounts, 0 where it is not."""

    name: str
    before: float
    after: float

    @property
    def by(self) -> float:
        """How much more there is after than before."""
        return self.after - self.before


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two tables of one title. `rows` are the names whose amounts differ, the largest change first."""

    title: str
    unit: Unit
    before: float | None
    after: float | None
    rows: list[Change]
    gates: bool

    @property
    def growth(self) -> float | None:
        """The total's rise as a share of what it was (negative where it fell); None without totals.

        What was nothing and is something has grown without bound: infinity.
        """
        if self.before is None or self.after is None:
            return None
        if self.before <= 0:
            return float("inf") if self.after > 0 else 0.0
        return (self.after - self.before) / self.before

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.rows and self.before == self.after


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one side to the other."""

    kind: str
    before: str
    after: str
    differences: list[Difference]
    notes: list[Note] = []

    @property
    def gateable(self) -> bool:
        """Whether a total that a gate goes by was measured on both sides."""
        return any(d.gates and d.growth is not None for d in self.differences)

    @property
    def same(self) -> bool:
        """Whether the two are alike in everything that was compared."""
        return all(d.same for d in self.differences)

    def over(self, share: float) -> list[Difference]:
        """The gating totals that grew by more than a share (0.01 is one per cent)."""
        return [d for d in self.differences if d.gates and (d.growth or 0.0) > share]


def floats(amounts: Mapping[str, int]) -> dict[str, float]:
    """Whole amounts as the rows of a table."""
    return {name: float(amount) for name, amount in amounts.items()}


def compare(before: Side, after: Side) -> Comparison:
    """The differences, table by table, in the order of the first side."""
    ours, theirs = ({t.title: t for t in side.tables} for side in (before, after))
    differences = [_difference(ours.get(title), theirs.get(title)) for title in {**ours, **theirs}]
    notes = [n for n in before.notes if n in after.notes]
    for side, other in ((before, after), (after, before)):
        notes += [Note(f"{side.path}: {n.check}", n.reason) for n in side.notes if n not in other.notes]
    notes += [
        Note(d.title, "measured on one side only") for d in differences if (d.before is None) != (d.after is None)
    ]
    return Comparison(kind=before.kind, before=before.path, after=after.path, differences=differences, notes=notes)


def _difference(before: Table | None, after: Table | None) -> Difference:
    one = before or after
    assert one is not None
    ours = before.rows if before is not None else {}
    theirs = after.rows if after is not None else {}
    rows, (first, second) = _changes(ours, theirs), (getattr(table, "total", None) for table in (before, after))
    return Difference(title=one.title, unit=one.unit, gates=one.gates, rows=rows, before=first, after=second)


def _changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[Change]:
    rows = [Change(name=n, before=before.get(n, 0.0), after=after.get(n, 0.0)) for n in {**before, **after}]
    return sorted((r for r in rows if r.by), key=lambda r: -abs(r.by))
