"""Why a device was idle: for every gap, what the host was doing until it launched the work that ended it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from torchvet.readers.trace_facts import Idle
from torchvet.traces import names
from torchvet.traces.intervals import Span, around, merged, stretch, total, within, without
from torchvet.traces.phases import Painted, phase_at
from torchvet.traces.timeline import Call, Timeline, Work

LAUNCH_LATENCY = 10.0
"""Microseconds between a launch and its kernel that are the hardware's, not a reason."""
PYTHON_PAUSE = 200.0
"""Microseconds between two operators up to which the host counts as dispatching: what is longer is its own doing."""
LONGEST_DISPATCH = 1_000.0
"""Microseconds that the host may take from one launch to the next and still count as dispatching: an operator takes 10
to 100. What takes longer starts CUDA, loads a module, or computes on the host."""
BLOCKS = 50.0
"""Microseconds from which on an asynchronous copy that took as long has evidently blocked the host."""


class Gap(NamedTuple):
    """A part of an idle stretch, in microseconds, why, and for waiting the call that made the host wait."""

    start: float
    end: float
    reason: Idle
    call: Call | None
    phase: str


class HostTimes(NamedTuple):
    """Merged stretches of what the host did, over all of its threads."""

    named: list[tuple[Idle, list[Span]]]
    """What explains idle time by itself, the surest first; empty ones are left out."""
    busy: list[Span]
    waits: list[Call]
    starts: list[float]
    waiting: list[Span]


def host_times(timeline: Timeline, waits: list[Call]) -> HostTimes:
    """Gathered once for all gaps."""
    spans = timeline.spans
    busy = list(map(stretch, timeline.operators))
    for kind in ("backward", "optimizer"):
        busy += map(stretch, spans.get(kind, ()))
    if not busy:
        busy = list(map(stretch, timeline.calls))
    ordered = sorted(waits, key=stretch)
    named: list[tuple[Idle, list[Span]]] = [
        ("profiler", merged(timeline.overhead)),
        ("collector", _merged_items(timeline, "collector")),
        ("compile", _merged_items(timeline, "compile")),
        ("input", _merged_items(timeline, "data")),
        ("allocator", merged(map(stretch, timeline.driver.get("allocate", ())))),
    ]
    return HostTimes(
        named=[(reason, times) for reason, times in named if times],
        busy=merged(busy, PYTHON_PAUSE),
        waits=ordered,
        starts=[c.start for c in ordered],
        waiting=merged(map(stretch, ordered), LAUNCH_LATENCY),
    )


def _merged_items(timeline: Timeline, kind: str) -> list[Span]:
    return merged(map(stretch, timeline.spans.get(kind, ())))


def waits_of(timeline: Timeline, copies: dict[object, Work]) -> list[Call]:
    """The calls in which the host waited for the device: synchronisations, and copies that blocked."""
    blocked = [c for c in timeline.driver.get("copy", ()) if _blocked(c, copies.get(c.correlation))]
    return timeline.driver.get("sync", []) + blocked


def _blocked(call: Call, copy: Work | None) -> bool:
    """Whether a copy held the host until it was done: it returned when the copy ended, or nearly."""
    if copy is None or copy.kind != "copy" or names.direction(copy.name) not in ("host-to-device", "device-to-host"):
        return False
    return call.end - call.start >= BLOCKS and call.end >= copy.end - LAUNCH_LATENCY


def explain(
    gaps: list[Span], ending: dict[float, Work], launches: dict[object, Call], host: HostTimes, painted: Painted
) -> list[Gap]:
    """The reasons of all gaps; `ending` is the work that ends a gap by the time at which it begins."""
    found: list[Gap] = []
    plain = not host.named and not host.waits
    for start, end in gaps:
        work = ending.get(end)
        call = launches.get(work.correlation) if work is not None else None
        launched = min(end, call.end) if call is not None else end
        phase = phase_at(painted, (start + launched) / 2) if end - start > LAUNCH_LATENCY else ""
        # Launched before the gap began: the host was ahead, so nothing that it did explains the gap.
        if work is not None and (call is None or launched <= start):
            found.append(Gap(start, end, "device", None, phase))
            continue
        if launched - start <= PYTHON_PAUSE and plain:
            found.append(Gap(start, launched, "launch", None, phase))
        else:
            found += _of_host(start, launched, host, phase)
        rest = end - launched
        if rest > 0:
            found.append(Gap(launched, end, "launch" if rest <= LAUNCH_LATENCY else "device", None, phase))
    return found


def _of_host(start: float, end: float, host: HostTimes, phase: str) -> list[Gap]:
    """What the host did in a stretch in which the device waited for it."""
    rest: list[Span] = [(start, end)]
    found: list[Gap] = []
    for reason, spans in host.named:
        taken = within(spans, start, end)
        if taken:
            found += [Gap(a, b, reason, None, phase) for s in rest for a, b in within(taken, *s)]
            rest = without(rest, taken)
    # What has a name of its own is taken; of the rest, waiting for the device explains as much as it lasted.
    waited, left = _wait_at(start, host)
    for first, last in rest:
        # Not waiting would have put the host ahead by as long as it waited, and by no more.
        if left > 0:
            until = min(last, first + left)
            found.append(Gap(first, until, "synchronisation", waited, phase))
            first, left = until, left - (until - first)
        if last - first <= PYTHON_PAUSE:
            found.append(Gap(first, last, "launch", None, phase))
            continue
        busy = within(host.busy, first, last)
        # One launch ends the gap, however long the host was at it.
        dispatching: Idle = "launch" if total(busy) <= LONGEST_DISPATCH else "host"
        found += [Gap(a, b, dispatching, None, phase) for a, b in busy]
        found += [
            Gap(a, b, "host" if b - a > PYTHON_PAUSE else "launch", None, phase)
            for a, b in without([(first, last)], busy)
        ]
    return found


def _wait_at(time: float, host: HostTimes) -> tuple[Call | None, float]:
    """The call in which the host was waiting when the device ran dry, and how long it had waited by then.

    A call that returned just before counts, and calls that follow each other at once are one wait.
    """
    wait = around(host.waiting, time) or around(host.waiting, time - LAUNCH_LATENCY)
    if wait is None:
        return None, 0.0
    index = bisect_right(host.starts, wait[1])
    inside = [c for c in host.waits[max(0, index - 8) : index] if c.end >= wait[0]]
    if not inside:
        return None, 0.0
    return max(inside, key=lambda c: (c.end - c.start, -c.start)), wait[1] - wait[0]


def by_reason(gaps: list[Gap], steps: int) -> dict[str, float]:
    """Seconds per step and reason."""
    found: defaultdict[str, float] = defaultdict(float)
    for gap in gaps:
        found[gap.reason] += (gap.end - gap.start) / steps / 1e6
    return dict(found)
