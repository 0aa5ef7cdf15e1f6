"""What keeps a growing name within limits: its own capacity, code that empties it, a loop that it dies with or that
ends, a dataset whose items it is kept by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.recording.series import CONTAINERS
from torchvet.recording.training_records import LoopBound, Ran

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Removal, Store


_STEPS_A_TURN = 4
"""Steps for each item that was stored, at least, where items come by epochs or trainings."""


@dataclass(frozen=True)
class Bound:
    """A limit in words, and in bytes where it can be worked out."""

    text: str
    bytes: int | None = None


def bound_of(growth: Growth, recording: Recording) -> Bound | None:
    """The tightest limit that is known; None when there is none."""
    if growth.dropped_at is not None:
        return Bound(f"it was let go of by step {growth.dropped_at:,}", growth.bytes)
    return (
        _capacity(growth)
        or _slots(growth)
        or _loop(growth, recording)
        or _stored(growth, recording)
        or _removal(growth, recording)
    )


def _capacity(growth: Growth) -> Bound | None:
    holding = growth.holding
    if holding.capacity is None:
        return None
    each = growth.bytes / holding.length if holding.length else growth.bytes_per_step
    return Bound(f"its type holds at most {holding.capacity:,} items", int(each * holding.capacity))


def _slots(growth: Growth) -> Bound | None:
    """A list made at its full length, whose places are taken one by one."""
    holding = growth.holding
    length, taken = holding.length, holding.items
    if length is None or length != growth.length_before or not 0 < taken < length or holding.item_type in CONTAINERS:
        return None
    return Bound(f"it has {length:,} places, of which {taken:,} are taken", int(growth.bytes / taken * length))


def _stored(growth: Growth, recording: Recording) -> Bound | None:
    """What the statement that stores says itself."""
    stores = recording.index.stores(*growth.holding.where)
    stores = [s for s in stores if s.in_loop] or stores
    if not stores:
        return None
    return _turns(growth, stores, recording) or _dataset(growth, stores, recording)


def _turns(growth: Growth, stores: list[Store], recording: Recording) -> Bound | None:
    """One store in each turn of a loop whose turns are whole epochs or trainings: the loop ends before memory does."""
    length, before = growth.holding.length, growth.length_before
    counted = bool(length) and before is not None
    added = (length or 0) - (before or 0) if counted else None
    if len(stores) > 1 or (added is not None and not 0 < added <= growth.steps / _STEPS_A_TURN):
        return None
    found = recording.index.turns_around(stores[0])
    if found is not None:
        turns, line = found
        bound = f"the loop in line {line} has {turns:,} turns"
        if added is not None and length and added <= turns:
            return Bound(bound, growth.bytes + growth.bytes * (turns - added) // length)
        if added is None and growth.last_step >= _STEPS_A_TURN * turns:
            # How many turns it took to come to this is not known: one at the least.
            return Bound(bound, growth.bytes * turns)
    of_trainings = recording.index.of_trainings(stores[0]) if added is not None else None
    if of_trainings is not None:
        return Bound(f"one for each training: the loop in line {of_trainings} makes the model anew")
    return None


def _dataset(growth: Growth, stores: list[Store], recording: Recording) -> Bound | None:
    """A dataset's cache by index, as long as its first epoch has not passed."""
    if not all(recording.index.is_keyed_by_index(s) for s in stores) or _outlived_an_epoch(growth, recording):
        return None
    lengths = [b.length for r in recording.ranks for b in r.all(LoopBound)]
    most = int(growth.bytes_per_step * max(lengths)) if lengths else None
    return Bound("it is full when every item of the dataset has been read", most)


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
    """Code that takes something out again, unless the growth has outlived a whole epoch and so proved it idle, or it
    takes out one item at a time, was seen at work and is too slow."""
    removals = recording.index.removals(*growth.holding.where)
    if not removals or _outlived_an_epoch(growth, recording) or all(_too_slow(r, recording) for r in removals):
        return None
    first = removals[0]
    return Bound(f"the code empties it or makes it anew (line {first.line})")


def _too_slow(removal: Removal, recording: Recording) -> bool:
    """Whether what grew all the while did so although a line ran that takes out one item, as from a queue."""
    if removal.kind not in ("get", "pop", "popleft"):
        return False
    seen = {n for rank in recording.ranks for ran in rank.all(Ran) if ran.path == removal.path for n in ran.lines}
    return recording.index.reached(removal.path, seen, removal.line)


def _outlived_an_epoch(growth: Growth, recording: Recording) -> bool:
    lengths = [b.length for r in recording.ranks for b in r.all(LoopBound)]
    return bool(lengths) and growth.last_tick - growth.first_tick > 1.5 * max(lengths)
