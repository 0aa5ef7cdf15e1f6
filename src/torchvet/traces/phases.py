"""What the host was at, over a step: waiting for data, forward, backward, optimizer, or something else."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from torchvet.traces.intervals import Span, total, within
from torchvet.traces.timeline import Thread, Timeline
from torchvet.traces.window import Window


class Painted(NamedTuple):
    """Merged stretches by phase, and all of them in order."""

    spans: dict[str, list[Span]]
    starts: list[float]
    ends: list[float]
    names: list[str]


def paint(timeline: Timeline, window: Window) -> Painted:
    """Merged stretches by phase, of the thread that takes the steps and of backward's. What has no name is `other`.

    Only outermost spans count. Between two spans of one phase the time belongs to it, between two phases to neither.
    """
    items = _outermost(timeline, window.thread)
    painted: dict[str, list[Span]] = {"data": [], "forward": [], "backward": [], "optimizer": []}
    phase, start, end = "", 0.0, 0.0
    for first, last, name in items:
        if name != phase or _in_other_step(window, end, first):
            if phase:
                painted[phase].append((start, end))
            phase, start, end = name, max(first, end), max(first, end)
        end = max(end, last)
    if phase:
        painted[phase].append((start, end))
    found = {name: [s for s in spans if s[1] > s[0]] for name, spans in painted.items()}
    ordered = sorted((start, end, name) for name, spans in found.items() for start, end in spans)
    return Painted(found, [o[0] for o in ordered], [o[1] for o in ordered], [o[2] for o in ordered])


def _in_other_step(window: Window, before: float, after: float) -> bool:
    """Whether a step begins between two times."""
    index = bisect_left(window.starts, before)
    return index < len(window.starts) and window.starts[index] < after


def _outermost(timeline: Timeline, main: Thread | None) -> list[tuple[float, float, str]]:
    """Outermost spans of the main thread and of threads that run backward, in order, with their phases."""
    found = [(i.start, -i.end, "data") for i in timeline.spans.get("data", ()) if i.thread == main]
    found += [(i.start, -i.end, "optimizer") for i in timeline.spans.get("optimizer", ()) if i.thread == main]
    backward = timeline.spans.get("backward", ())
    found += [(i.start, -i.end, "backward") for i in backward if i.thread == main]
    found += [(i.start, -i.end, "forward") for i in timeline.operators if i.thread == main]
    # Other threads apart: their backward passes run beside the main thread and not within it.
    top = _top(found)
    return sorted(top + _top([(i.start, -i.end, "backward") for i in backward if i.thread != main]))


def _top(items: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    top, end = [], float("-inf")
    items.sort()
    for first, negative, name in items:
        if first >= end:
            end = -negative
            top.append((first, end, name))
    return top


def phase_at(painted: Painted, time: float) -> str:
    """The phase that a time lies in."""
    index = bisect_right(painted.starts, time) - 1
    return painted.names[index] if index >= 0 and painted.ends[index] >= time else "other"


def seconds(painted: Painted, window: Window) -> dict[str, float]:
    """Seconds per step and phase."""
    number = len(window.spans)
    found = {
        name: sum(total(within(spans, start, end)) for start, end in window.spans) / number / 1e6
        for name, spans in painted.spans.items()
    }
    whole = sum(end - start for start, end in window.spans) / number / 1e6
    found["other"] = max(0.0, whole - sum(found.values()))
    return found
