"""What keeps a growing name within limits: its own capacity, code that empties it, a loop that it dies with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.recording.training_records import LoopBound

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth


@dataclass(frozen=True)
class Bound:
    """A limit in words, and in bytes where it can be worked out."""

    text: str
    bytes: int | None = None


def bound_of(growth: Growth, recording: Recording) -> Bound | None:
    """The tightest limit that is known; None when there is none."""
    if growth.dropped_at is not None:
        return Bound(f"it was let go of by step {growth.dropped_at:,}", growth.bytes)
    return _capacity(growth) or _loop(growth, recording) or _removal(growth, recording)


def _capacity(growth: Growth) -> Bound | None:
    holding = growth.holding
    if holding.capacity is None:
        return None
    each = growth.bytes / holding.length if holding.length else growth.bytes_per_step
    return Bound(f"its type holds at most {holding.capacity:,} items", int(each * holding.capacity))


def _loop(growth: Growth, recording: Recording) -> Bound | None:
    """A plain local of the function that runs a loop over a loader of known length, made anew for each run of it.

    Only where that function is called again and again, or only evaluates: the loop in a `main()` is the whole program.
    """
    holding = growth.holding
    name, scope, path, _ = growth.holding.where
    if len(holding.path) != 1 or not (growth.kind == "evaluation" or _called_in_loop(growth, recording)):
        return None
    for loop in {b.place: b for r in recording.ranks for b in r.all(LoopBound)}.values():
        if loop.place.path != path or not scope.endswith(f".{loop.place.function}"):
            continue
        if growth.last_tick - growth.first_tick > loop.length:
            continue
        if recording.index.loop_bound(loop.place.function, path, name, loop.place.line):
            size = int(growth.bytes_per_step * loop.length)
            return Bound(f"it dies with the loop in line {loop.place.line} ({loop.length:,} batches)", size)
    return None


def _called_in_loop(growth: Growth, recording: Recording) -> bool:
    caller = growth.holding.called_from
    return caller is not None and recording.index.enclosing_loop(caller.path, caller.line) is not None


def _removal(growth: Growth, recording: Recording) -> Bound | None:
    """Code that takes something out again, unless the growth has outlived a whole epoch and so proved it idle."""
    removals = recording.index.removals(*growth.holding.where)
    if not removals or _outlived_an_epoch(growth, recording):
        return None
    first = removals[0]
    return Bound(f"the code empties it or makes it anew (line {first.line})")


def _outlived_an_epoch(growth: Growth, recording: Recording) -> bool:
    lengths = [b.length for r in recording.ranks for b in r.all(LoopBound)]
    return bool(lengths) and growth.last_tick - growth.first_tick > 1.5 * max(lengths)
