"""The history of a device's allocations, as `torch.cuda.memory._record_memory_history` asks for it."""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

Stack = tuple[int, ...]
"""Code objects by their number and the place in each, in turn, innermost first: lines are worked out only when a
snapshot is taken."""
_codes: dict[int, CodeType] = {}
_stacks: dict[Stack, Stack] = {}
"""Equal stacks are kept once."""
_by_number: dict[int, Stack] = {}
"""The same by identity, by which events refer to them."""

_numbers: dict[int, int | None] = {}
"""The number of a code object by its identity; None for torchvet's own."""
_places: dict[int, int] = {}
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep
"""All of torchvet, as for `probes/base/frames.py`: a stack begins at the program's line. What watches also differs from
step to step: with it there would be ever more stacks."""
_MOST_FRAMES = 128
NEVER, STATE, ALLOC, ALL = range(4)
"""Of what stacks are kept: of nothing, of what is allocated, of allocations in the trace, of frees too."""
CONTEXTS = {None: NEVER, "state": STATE, "alloc": ALLOC, "all": ALL}


class Event(NamedTuple):
    """One event; for `oom` the address is what the driver has left. Bytes, and microseconds since the epoch."""

    action: str
    address: int
    size: int
    stream: int
    time: int
    stack: Stack | None


_ACTIONS = (
    *("alloc", "free_requested", "free_completed", "snapshot", "oom"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
)
_AT_ONCE = 1 << 17
"""Rows up to which a ring has its whole room from the start: as objects, or by and by, they would look like a leak of
the program's, which is judged by the heap."""


class Ring:
    """The latest rows of so many whole numbers each, at most so many rows, in one array."""

    def __init__(self, fields: int, most: int) -> None:
        self._fields, self._most = fields, most
        self._next = self._count = 0
        self._numbers = array("q", bytes(8 * fields * most) if most <= _AT_ONCE else b"")

    def add(self, *row: int) -> None:
        """Note a row; the oldest makes room."""
        if not self._most:
            return
        # One flat array: a row of Python objects for each event would take ten times the memory.
        at = self._next * self._fields
        self._numbers[at : at + self._fields] = array("q", row)
        self._next = (self._next + 1) % self._most
        self._count = min(self._count + 1, self._most)

    def __len__(self) -> int:
        return self._count

    def rows(self) -> Iterator[array[int]]:
        """From the oldest on."""
        first = self._next if self._count == self._most else 0
        for index in range(first, first + self._count):
            at = index % self._most * self._fields
            yield self._numbers[at : at + self._fields]


class Events:
    """The latest events, at most so many."""

    def __init__(self, most: int, before: Iterable[Event] = ()) -> None:
        self._ring = Ring(len(Event._fields), most)
        for event in before:
            self.append(event)

    def append(self, event: Event) -> None:
        """Note one."""
        # The stack goes in by identity: equal ones are kept once in `_by_number`.
        *numbers, stack = event[1:]
        self._ring.add(_ACTIONS.index(event.action), *numbers, 0 if stack is None else id(stack))

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Event]:
        for action, address, size, stream, when, stack in self._ring.rows():
            yield Event(_ACTIONS[action], address, size, stream, when, _by_number.get(stack))


class History:
    """One device's. It records while `context` or `events` ask for it."""

    def __init__(self) -> None:
        self.tracing = False
        self.context = NEVER
        self.events = Events(0)
        self.noted = 0
        """Events so far: more than there are once the oldest have made room."""
        self.stacks: dict[int, Stack] = {}
        """Of blocks in use and of segments, by address: `-address` for a segment."""
        self._skipped: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether there is anything to tell it."""
        return self.tracing or self.context > NEVER

    def start(self, tracing: bool, context: int, most: int, clear: bool, skipped: Iterable[str]) -> None:
        """Record from now on; at most so many events, the oldest of which make room."""
        self.tracing, self.context = tracing, context
        # torch passes the largest unsigned number for "all".
        self.events = Events(min(most, sys.maxsize), () if clear else self.events)
        self.noted = 0 if clear else self.noted
        self._skipped = frozenset(skipped)

    def stop(self) -> None:
        """Record nothing any more and forget what was recorded."""
        self.tracing, self.context = False, NEVER
        self.events = Events(0)
        self.noted = 0
        self.stacks.clear()

    def note(self, action: str, address: int, size: int, stream: int) -> None:
        """An event of the allocator."""
        stack: Stack | None = None
        if action in ("free_requested", "free_completed"):
            kept = self.stacks.get(address)
            # Without stacks of frees torch shows where the block was allocated.
            stack = stack_here() if self.context >= ALL else kept
            # Only now: a block that waits for a stream is still somebody's.
            if action == "free_completed" and kept is not None:
                del self.stacks[address]
        elif self.context >= STATE:
            stack = stack_here()
            if action == "alloc":
                self.stacks[address] = stack
            elif action in ("segment_alloc", "segment_map"):
                # Negative, because a segment has the address of its first block.
                self.stacks[-address] = stack
        if self.tracing and action not in self._skipped:
            stack = stack if self.context >= ALLOC else None
            self.events.append(Event(action, address, size, stream, time.time_ns() // 1000, stack))
            self.noted += 1


def stack_here() -> Stack:
    """The Python frames below torchvet's own, innermost first."""
    found: list[int] = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < 2 * _MOST_FRAMES:
        code = frame.f_code
        number = _numbers.get(id(code), 0)
        if number == 0:
            number = _numbered(code)
        # None is torchvet's own: its frames are no part of the program's stack.
        if number is not None:
            found.append(number)
            # One object for each number, as large ones are objects of their own.
            found.append(_places.setdefault(frame.f_lasti, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    stack = tuple(found)
    kept = _stacks.setdefault(stack, stack)
    _by_number[id(kept)] = kept
    return kept


def _numbered(code: CodeType) -> int | None:
    # The identity is the number, since the object is kept.
    number = id(code)
    # Kept for good: no later code object can have the number, which stacks refer to.
    _codes[number] = code
    _numbers[number] = None if code.co_filename.startswith(_OURS) else number
    return _numbers[number]


def frames_of(stack: Stack | None) -> list[dict[str, Any]]:
    """As they stand in a snapshot."""
    flat = iter(stack or ())
    pairs = [(_codes[number], at) for number, at in zip(flat, flat, strict=True)]
    return [{"name": c.co_name, "filename": c.co_filename, "line": _line(c, at)} for c, at in pairs]


@cache
def _lines(code: CodeType) -> tuple[tuple[int, int, int], ...]:
    return tuple((a, b, line or code.co_firstlineno) for a, b, line in code.co_lines())


@cache
def _line(code: CodeType, at: int) -> int:
    return next((line for a, b, line in _lines(code) if a <= at < b), code.co_firstlineno)
