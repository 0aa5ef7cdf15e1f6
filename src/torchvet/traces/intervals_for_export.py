"""A trace's steps, phases and idle time with their times, for who wants to draw them; a digest has only their sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torchvet.gc_pause import collector_off
from torchvet.readers.kineto import TraceFile
from torchvet.traces import integrity, phases
from torchvet.traces.device import device_time
from torchvet.traces.idle import Gap
from torchvet.traces.intervals import Span
from torchvet.traces.phases import Painted
from torchvet.traces.steps import steps_of
from torchvet.traces.timeline import Item, Timeline, Work
from torchvet.traces.window import Window


class Stretches(NamedTuple):
    """All in microseconds of the file's own clock, which counts from `base` nanoseconds since the epoch if it says so.

    `gaps` are the idle times of the `device` that did most, an empty name if there is none; their reasons are to be
    believed where `trusted`. `busy` is when it ran anything. `spent` are seconds and times a step by name: of what ran
    on the device, or of the host's outermost operators where there is none, those that took most first.
    """

    window: Window
    painted: Painted
    gaps: list[Gap]
    device: str
    trusted: bool
    base: int | None
    busy: list[Span]
    spent: list[tuple[str, float, float]]


def stretches_of(path: Path) -> Stretches | None:
    """Read a trace; None for one without anything that lasts. Raises `BadInput` for what is none."""
    with collector_off():
        file, timeline = TraceFile(path), Timeline()
        for batch in file.batches():
            timeline.add(batch)
        window = steps_of(timeline)
        if window is None:
            return None
        trusted, _ = integrity.check(file, timeline, window)
        painted = phases.paint(timeline, window)
        time = device_time(timeline, window, painted, trusted)
        base = file.header.base
        return Stretches(
            window,
            painted,
            time.gaps if time is not None else [],
            f"device {time.device}" if time is not None else "",
            trusted,
            base if type(base) is int and 0 <= base < 2**63 else None,
            time.busy if time is not None else [],
            _spent(time.work if time is not None else timeline.operators, window),
        )


def _spent(found: Iterable[Work | Item], window: Window) -> list[tuple[str, float, float]]:
    steps = max(1, len(window.spans))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for one in found:
        if isinstance(one, Work) or window.holds(one.start):
            sums[one.name][0] += (one.end - one.start) / steps / 1e6
            sums[one.name][1] += 1 / steps
    return sorted(((name, s, n) for name, (s, n) in sums.items()), key=lambda row: -row[1])
