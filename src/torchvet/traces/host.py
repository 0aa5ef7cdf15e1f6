"""What the host spends on the loader, on Python's collector and on compiling, and the memory that was in use."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from torchvet.readers.trace_facts import Cost, MemoryUse
from torchvet.traces.device import DeviceTime
from torchvet.traces.intervals import common, merged, stretch, total, within
from torchvet.traces.places import Places
from torchvet.traces.timeline import Item, Memory, Timeline
from torchvet.traces.window import Window

_KINDS = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 20: "privateuse1", 17: "mtia"}
"""c10::DeviceType, of those that have an allocator."""


def cost_of(
    timeline: Timeline, kind: str, window: Window, time: DeviceTime | None, reason: str, places: Places
) -> Cost | None:
    """Spans of one kind on any thread of the host: how long they took, and how long the device was idle for them.

    Without a device the step is as much shorter as they take, on the thread that takes the steps.
    """
    items = [i for i in timeline.spans.get(kind, ()) if time is not None or i.thread == window.thread]
    inside = common(merged(map(stretch, items)), window.spans)
    items = [i for i in items if window.holds(i.start) or window.holds(i.end)]
    if not inside or not items:
        return None
    steps = len(window.spans)
    duration = total(inside) / steps / 1e6
    idle = sum(g.end - g.start for g in time.gaps if g.reason == reason) / steps / 1e6 if time is not None else duration
    longest: Item = max(items, key=lambda i: i.end - i.start)
    number = sum(window.holds(i.start) for i in items)
    where = places.at(longest.start, longest.thread)
    return Cost(
        longest.name,
        seconds=min(idle, duration) if time is None else idle,
        count=number / steps,
        duration=duration,
        where=where,
    )


def idle_by_step(timeline: Timeline, kind: str, window: Window, time: DeviceTime | None, reason: str) -> list[float]:
    """Seconds that each step's spans of a kind cost; what the device idles after the last step is the last's."""
    if time is None:
        items = [i for i in timeline.spans.get(kind, ()) if i.thread == window.thread]
        spans = merged(map(stretch, items))
        return [total(within(spans, *step)) / 1e6 for step in window.spans]
    found = [0.0] * len(window.spans)
    starts = time.step_starts
    for gap in time.gaps:
        if gap.reason == reason:
            found[max(0, bisect_right(starts, gap.start) - 1)] += (gap.end - gap.start) / 1e6
    return found


def steps_with(timeline: Timeline, kind: str, window: Window) -> list[bool]:
    """For each step, those set apart too, whether spans of a kind begin in it."""
    starts = [i.start for i in timeline.spans.get(kind, ())]
    return [any(step.start <= s < step.end for s in starts) for step in window.every]


def memory_of(timeline: Timeline, window: Window) -> list[MemoryUse]:
    """The allocator's own counts per device, where the profiler recorded them."""
    found = []
    for (kind, index), events in timeline.memory.items():
        name = _KINDS.get(kind, f"device type {kind}") if isinstance(kind, int) else str(kind)
        known = [e for e in events if e[1] > 0 or e[2] > 0]
        if known:
            events = sorted(known)
            found.append(
                MemoryUse(
                    device=name if name == "cpu" else f"{name}:{index}",
                    peak=max(held for _, held, _ in events),
                    reserved=max(reserved for _, _, reserved in events),
                    growth_per_step=_growth(events, window),
                )
            )
    return sorted(found, key=lambda m: (m.device == "cpu", -m.peak))


def _growth(events: list[Memory], window: Window) -> float | None:
    """Bytes per step by which what is left after a step rises, where it rises at every step; the first is left out."""
    left: list[int] = []
    index = 0
    for step in window.every:
        while index < len(events) and events[index][0] < step.end:
            index += 1
        if index:
            left.append(events[index - 1][1])
    if len(left) < 4:
        return None
    risen = [b - a for a, b in pairwise(left[1:])]
    return sum(risen) / len(risen) if min(risen) > 0 else 0.0
