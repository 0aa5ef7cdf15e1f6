"""One device's time: what ran, what of it ran alone, and why nothing ran. The profiler's own waiting is left out."""

from __future__ import annotations

from typing import NamedTuple

from torchvet.readers.trace_facts import Gpu
from torchvet.traces import idle, names
from torchvet.traces.idle import Gap
from torchvet.traces.intervals import Span, common, merged, stretch, total, without
from torchvet.traces.phases import Painted
from torchvet.traces.timeline import Call, Thread, Timeline, Work
from torchvet.traces.window import Window

TINY = 10.0
"""Microseconds below which a kernel is shorter than what launching it costs the host."""


class DeviceTime(NamedTuple):
    """What other analyses need of a device: its work in the steady steps, the calls that launched it, its idle time."""

    device: Thread
    work: list[Work]
    launches: dict[object, Call]
    by_correlation: dict[object, Work]
    waits: list[Call]
    gaps: list[Gap]
    communication: list[Span]
    exposed_copies: list[Span]
    computing: list[Span]
    busy: list[Span]
    steps: int
    step_seconds: float
    step_starts: list[float]


def device_time(timeline: Timeline, window: Window, painted: Painted, trusted: bool) -> DeviceTime | None:
    """The time of the device that did most, or None for a trace without a device."""
    device = _busiest(timeline.work)
    if device is None:
        return None
    runs = window.device_runs
    own = (w for w in timeline.work if w.device == device and window.holds(window.asked_at(w)))
    work = sorted(own, key=stretch)
    if not work:
        return None
    # In columns, since a hundred thousand pieces of work are gone through several times.
    starts, ends, _, _, correlations, *_ = zip(*work, strict=True)
    by_correlation: dict[object, Work] = dict(zip(correlations, work, strict=True))
    by_correlation.pop(None, None)
    launches = timeline.launches
    waits = _own_left_out(idle.waits_of(timeline, by_correlation), window, timeline)
    busy = common(merged(zip(starts, ends, strict=True)), runs)
    gaps = without(runs, busy)
    host = idle.host_times(timeline, waits)
    # Backwards, so that of several pieces of work that begin at once the first one counts.
    ending = dict(zip(reversed(starts), reversed(work), strict=True))
    explained = (
        idle.explain(gaps, ending, launches, host, painted)
        if trusted
        else [Gap(a, b, "device", None, "") for a, b in gaps]
    )
    computing, talking, copying = _sorts(work)
    steps = len(window.spans)
    return DeviceTime(
        device,
        work,
        launches,
        by_correlation,
        waits,
        explained,
        common(without(talking, computing), runs),
        common(without(without(copying, computing), talking), runs),
        computing,
        busy,
        steps,
        total(runs) / steps / 1e6,
        [s.begins for s in window.steady],
    )


def _sorts(work: list[Work]) -> tuple[list[Span], list[Span], list[Span]]:
    """When anything computed, communicated, and was copied between host and device."""
    computing: list[Span] = []
    talking: list[Span] = []
    copying: list[Span] = []
    for start, end, _, _, _, kind, name, _ in work:
        if kind == "kernel":
            (talking if names.is_collective_kernel(name) else computing).append((start, end))
        elif kind == "copy" and names.direction(name) != "device-to-device":
            copying.append((start, end))
    return merged(computing), merged(talking), merged(copying)


def _busiest(work: list[Work]) -> Thread | None:
    devices = {w.device for w in work}
    if len(devices) == 1:
        return devices.pop()
    times: dict[Thread, float] = {}
    for item in work:
        times[item.device] = times.get(item.device, 0.0) + item.end - item.start
    return max(times, key=lambda d: times[d], default=None)


def _own_left_out(waits: list[Call], window: Window, timeline: Timeline) -> list[Call]:
    """Without the profiler's own: what waits outside the steps, or for everything once nothing is launched any more."""
    # When it stops, the profiler synchronizes the device: for 158 and 89 ms in two real traces.
    asking = timeline.driver.get("launch", ()) or timeline.driver.get("copy", ())
    last = max(asking, key=stretch).start if asking else window.end
    return [c for c in waits if window.holds(c.start) and not ("DeviceSynchronize" in c.name and c.start > last)]


def summed_up(time: DeviceTime) -> Gpu:
    """The figures for people and rules."""
    kernels = [w.end - w.start for w in time.work if w.kind == "kernel"]
    steps, busy = time.steps, total(time.busy) / time.steps / 1e6
    communication, copies = (total(s) / steps / 1e6 for s in (time.communication, time.exposed_copies))
    return Gpu(
        device=str(time.device),
        busy_share=busy / time.step_seconds if time.step_seconds else 0.0,
        compute=busy - communication - copies,
        communication=communication,
        copies=copies,
        idle=idle.by_reason(time.gaps, steps),
        kernels=len(kernels) / steps,
        mean_kernel=sum(kernels) / len(kernels) / 1e6 if kernels else 0.0,
        tiny_share=sum(k < TINY for k in kernels) / len(kernels) if kernels else 0.0,
    )
