"""The collectives of one rank, step by step, so that ranks can be compared by when they arrive at them."""

from __future__ import annotations

from bisect import bisect_right

from torchvet.readers.trace_facts import Collective
from torchvet.traces import names
from torchvet.traces.device import DeviceTime
from torchvet.traces.phases import Painted, phase_at
from torchvet.traces.timeline import Timeline
from torchvet.traces.window import Window

MOST = 4000
"""Collectives kept of a rank; a digest stays within some hundred kilobytes."""


def collectives_of(timeline: Timeline, window: Window, time: DeviceTime | None, painted: Painted) -> list[Collective]:
    """In the order in which they began. On the CPU the span of a gloo operation holds its waiting, as a kernel does."""
    if time is not None:
        found = []
        for work in time.work:
            if work.kind == "kernel" and names.is_collective_kernel(work.name):
                call = time.launches.get(work.correlation)
                found.append((work.start, work.end, work.name, call.start if call is not None else work.start))
    else:
        found = [
            (i.start, i.end, i.name, i.start)
            for i in timeline.spans.get("collective", ())
            if i.name.startswith(("gloo:", "mpi:", "ucc:"))
        ]
        found.sort()
    steady = window.steady
    starts = [s.start for s in steady]
    result = []
    for start, end, name, launched in found[:MOST]:
        # By its launch: the kernel itself may run when the host is in the next step already.
        step = bisect_right(starts, launched) - 1
        if window.holds(launched):
            # Arrivals tell ranks apart, phases do not: 200 ms lost in one rank's backward showed as 292 ms in every
            # rank's.
            begins, lasts = (start - starts[step]) / 1e6, (end - start) / 1e6
            short = name.split("(")[0].removeprefix("void ")[:60]
            phase = phase_at(painted, launched)
            result.append(Collective(steady[step].number, short, round(begins, 7), round(lasts, 7), phase))
    return result
