"""Sums up what is read from files, by the call that reads: how much of it is read again."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from types import FrameType
from typing import NamedTuple

from torchvet.probes.base import frames
from torchvet.probes.base.kit import Place, outward
from torchvet.probes.numerics.half import Allowance
from torchvet.recording.records.reading import Container, ReadAgain

_SECONDS, _SHARE = 0.1, 0.01
"""What looking may take: so many seconds, and a share of the time since it began. Chosen, not measured."""
_CALLS, _MEMBERS = 64, 4096
"""Calls that are followed, and members of each that are told apart."""
_CALLERS = 8
_FETCH = "utils/data/_utils/fetch.py"
"""The file of torch's by which a loader asks for items."""


class Member(NamedTuple):
    """What is read: something that is equal for the same content only, and what a reader calls it."""

    what: Container
    key: Hashable
    name: str


class _Call:
    """A call of a reading function, as it was reached."""

    __slots__ = ("last", "record", "seen")

    def __init__(self, record: ReadAgain) -> None:
        self.record = record
        self.seen: dict[Hashable, int] = {}
        """By member: the pass in which it was read last."""
        self.last: Hashable = None


class Reads:
    """All calls of a process."""

    def __init__(self) -> None:
        self.passes = 0
        """Passes over loaders that have begun."""
        self.over = False
        """Whether looking has taken what it may: nothing is counted any more."""
        self.began = self.ended = time.perf_counter()
        self._calls: dict[Hashable, _Call] = {}
        self._allowance = Allowance(_SECONDS, _SHARE)

    def add(self, member: Member, size: int, seconds: float, frame: FrameType | None, since: float) -> None:
        """A member was read; looking at it began at a reading `since` of `time.thread_time`."""
        key, lines, fetched = _way(frame)
        call = self._calls.get((key, member.what))
        if call is None and lines and len(self._calls) < _CALLS:
            place, *callers = lines
            record = ReadAgain(len(self._calls), place, callers, member.what, member.name, in_loader=fetched)
            call = self._calls[key, member.what] = _Call(record)
        if call is not None:
            self._count(call, member, size, seconds, fetched)
        self._allowance.spend(since)
        self.ended = time.perf_counter()
        self.over = not self._allowance.left()

    def _count(self, call: _Call, member: Member, size: int, seconds: float, fetched: bool) -> None:
        record, seen = call.record, call.seen
        record.reads += 1
        # Once in each pass is what a loader is there for. A loop by hand does not say where its passes begin: there
        # only what comes twice in a row is sure to come again.
        if (fetched and seen.get(member.key) == self.passes) or (not fetched and call.last == member.key):
            record.again += 1
            record.seconds += seconds
        if member.key not in seen:
            record.members += 1
            record.bytes += size
        if member.key in seen or len(seen) < _MEMBERS:
            seen[member.key] = self.passes
        call.last = member.key

    def records(self) -> Iterator[ReadAgain]:
        """Calls that have read something again."""
        # All at once: other threads read meanwhile.
        return (call.record for call in list(self._calls.values()) if call.record.again)


def _way(frame: FrameType | None) -> tuple[Hashable, list[Place], bool]:
    """How a reading function was reached: what tells calls apart, the user's lines, and whether by a loader."""
    lines: list[Place] = []
    # Numbers only: code objects would be kept alive. Of two calls on one line each is one of its own.
    key: list[int] = []
    fetched = False
    for one in outward(frame):
        code = one.f_code
        if frames.owner(code.co_filename) == frames.USER:
            if len(lines) <= _CALLERS:
                lines.append(frames.place_of(one))
                key += (id(code), one.f_lasti)
        elif not fetched and code.co_filename.endswith(_FETCH):
            fetched = True
    return tuple(key), lines, fetched
