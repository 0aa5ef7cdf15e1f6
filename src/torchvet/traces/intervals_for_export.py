"""A trace's steps, phases and idle time with their times, for who wants to draw them; a digest has only their sums."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from torchvet.gc_pause import collector_off
from torchvet.readers.kineto import TraceFile
from torchvet.traces import integrity, phases
from torchvet.traces.device import device_time
from torchvet.traces.idle import Gap
from torchvet.traces.phases import Painted
from torchvet.traces.steps import steps_of
from torchvet.traces.timeline import Timeline
from torchvet.traces.window import Window


class Stretches(NamedTuple):
    """All in microseconds of the file's own clock, which counts from `base` nanoseconds since the epoch if it says so.

    `gaps` are the idle times of the `device` that did most, an empty name if there is none; their reasons are to be
    believed where `trusted`.
    """

    window: Window
    painted: Painted
    gaps: list[Gap]
    device: str
    trusted: bool
    base: int | None


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
        )
