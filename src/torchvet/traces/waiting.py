"""What synchronisations and copies cost: the time that the device was idle for them, or did nothing but copy."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from torchvet.readers.trace_facts import Cost
from torchvet.traces import names
from torchvet.traces.device import DeviceTime
from torchvet.traces.intervals import stretch, total, within
from torchvet.traces.phases import Painted, phase_at
from torchvet.traces.places import Places
from torchvet.traces.timeline import Call, Thread, Timeline, Work

_NEXT = 100.0
"""Microseconds within which a synchronisation follows the copy that it belongs to."""
_SMALLEST_TRIP = 1 << 16
"""Bytes from which on a copy there and back is one."""
_PLACED = 200
"""Calls whose function is looked up, the costliest first."""


class _Reason(NamedTuple):
    """What a wait belongs to: a copy of some direction, or nothing but itself."""

    direction: str
    copy: Work | None


class Waiting:
    """The waits and the copies of one device, with the idle time that each caused, in microseconds."""

    def __init__(self, timeline: Timeline, time: DeviceTime, painted: Painted, places: Places) -> None:
        self._time, self._painted, self._places = time, painted, places
        self._idle: dict[Call, float] = {}
        for gap in time.gaps:
            if gap.call is not None:
                self._idle[gap.call] = self._idle.get(gap.call, 0.0) + gap.end - gap.start
        self._copies: dict[Thread, list[Call]] = {}
        for call in sorted(timeline.driver.get("copy", ()), key=stretch):
            if call.correlation in time.by_correlation:
                self._copies.setdefault(call.thread, []).append(call)
        self._starts = {thread: [c.start for c in calls] for thread, calls in self._copies.items()}
        self._trips = _trips(time)
        self._travelling = {work for trip in self._trips for work in trip}

    def _reason(self, call: Call) -> _Reason:
        """The copy that a wait is for: itself, or the one right before on its thread."""
        work = self._time.by_correlation.get(call.correlation)
        if work is None:
            before = self._copies.get(call.thread, [])
            index = bisect_left(self._starts.get(call.thread, ()), call.start) - 1
            if index >= 0 and call.start - before[index].end <= _NEXT:
                work = self._time.by_correlation.get(before[index].correlation)
        if work is None or work.kind != "copy":
            return _Reason("", None)
        return _Reason(names.direction(work.name), work)

    def syncs(self) -> list[Cost]:
        """Synchronisations, and copies to the host that are waited for, by function; the costliest first.

        What belongs to a round trip is told there.
        """
        found: dict[object, Cost] = {}
        # By what they cost and not by their number: in a real trace 60 of them cost 0.2 ms together.
        ordered = sorted(self._time.waits, key=lambda c: -self._idle.get(c, 0.0))
        for number, call in enumerate(ordered):
            reason = self._reason(call)
            # What is told among transfers and round trips is not told twice.
            if reason.direction == "host-to-device" or reason.copy in self._travelling:
                continue
            where = self._places.at(call.start, call.thread) if number < _PLACED else None
            phase = phase_at(self._painted, call.start)
            what = "copy to the host" if reason.direction == "device-to-host" else call.name
            cost = found.setdefault((what, where or phase), Cost(what, where=where, phase=phase))
            cost.seconds += self._idle.get(call, 0.0)
            cost.duration += call.end - call.start
            cost.count += 1
            cost.bytes += reason.copy.bytes if reason.copy is not None else 0
        return self._per_step(list(found.values()))

    def transfers(self) -> list[Cost]:
        """Copies between host and device by direction and kind of memory; `seconds` is what no work hid."""
        found: dict[tuple[str, str], Cost] = {}
        longest: dict[tuple[str, str], Work] = {}
        waited = self._waited_for()
        for work in self._time.work:
            direction = names.direction(work.name) if work.kind == "copy" else ""
            if direction not in ("host-to-device", "device-to-host") or work in self._travelling:
                continue
            call = self._time.launches.get(work.correlation)
            phase = phase_at(self._painted, call.start if call is not None else work.start)
            what = f"{'pageable' if names.is_pageable(work.name) else 'pinned'} {direction}"
            cost = found.setdefault((what, phase), Cost(what, phase=phase))
            cost.seconds += total(within(self._time.exposed_copies, work.start, work.end))
            cost.seconds += waited.get(work, 0.0) if direction == "host-to-device" else 0.0
            cost.duration += work.end - work.start
            cost.count, cost.bytes = cost.count + 1, cost.bytes + work.bytes
            longest[what, phase] = max(longest.get((what, phase), work), work, key=lambda w: w.end - w.start)
        for key, work in longest.items():
            call = self._time.launches.get(work.correlation)
            found[key].where = self._places.at(call.start, call.thread) if call is not None else None
        return self._per_step(list(found.values()))

    def _waited_for(self) -> dict[Work, float]:
        """Idle time by the copy that it was waited for."""
        found: dict[Work, float] = {}
        for call, lost in self._idle.items():
            work = self._reason(call).copy
            if work is not None:
                found[work] = found.get(work, 0.0) + lost
        return found

    def round_trips(self) -> list[Cost]:
        """Copies to the host of which as many bytes go back in the same step."""
        waited, found = self._waited_for(), Cost("device to host and back")
        for there, back in self._trips:
            self._add_trip(found, there, back, waited)
        return self._per_step([found] if found.count else [])

    def _add_trip(self, found: Cost, there: Work, back: Work, waited: dict[Work, float]) -> None:
        for work in (there, back):
            found.seconds += total(within(self._time.exposed_copies, work.start, work.end)) + waited.get(work, 0.0)
            found.duration += work.end - work.start
        found.bytes += there.bytes
        found.count += 1
        call = self._time.launches.get(there.correlation)
        if call is not None and found.where is None:
            found.where = self._places.at(call.start, call.thread)
            found.phase = phase_at(self._painted, call.start)

    def _per_step(self, costs: list[Cost]) -> list[Cost]:
        steps = self._time.steps
        for cost in costs:
            cost.seconds, cost.duration = cost.seconds / steps / 1e6, cost.duration / steps / 1e6
            cost.count, cost.bytes = cost.count / steps, cost.bytes / steps
        return sorted(costs, key=lambda c: -c.seconds)


def _trips(time: DeviceTime) -> list[tuple[Work, Work]]:
    """Pairs of copies of the same number of bytes, to the host and later back, within one step."""
    found: list[tuple[Work, Work]] = []
    pending: dict[int, list[Work]] = {}
    step = -1
    for work in time.work:
        direction = names.direction(work.name) if work.kind == "copy" and work.bytes >= _SMALLEST_TRIP else ""
        if direction not in ("host-to-device", "device-to-host"):
            continue
        now = bisect_left(time.step_starts, work.start)
        if now != step:
            step, pending = now, {}
        if direction == "device-to-host":
            pending.setdefault(work.bytes, []).append(work)
        elif pending.get(work.bytes):
            found.append((pending[work.bytes].pop(), work))
    return found
