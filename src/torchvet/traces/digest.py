"""One file in, one digest out: the analyses in their order."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from torchvet.gc_pause import collector_off
from torchvet.readers.kineto import TraceFile
from torchvet.readers.trace_facts import Cost, Note, RankTrace, StepApart, Steps
from torchvet.traces import collectives, host, integrity, kernels, phases
from torchvet.traces.device import DeviceTime, device_time, summed_up
from torchvet.traces.elements import element_loops
from torchvet.traces.intervals import common, merged, stretch, total, within
from torchvet.traces.places import Places
from torchvet.traces.steps import steps_of
from torchvet.traces.timeline import Timeline
from torchvet.traces.waiting import Waiting
from torchvet.traces.window import Step, Window

_RANK = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
FEWEST_TO_LEAVE_OUT, MOST_OF_IT, WORTH_SAYING = 4, 0.6, 0.01
FEWEST_FOR_PARTS = 10
"""Steps from which on their spread is that of the middle eight tenths; below, of all."""
KEEPS_UP = 0.02
"""The part by which the device's time for all steps may differ from the host's where it does not set the pace."""
RECORDING = 1.7e-6
"""Seconds that the profiler takes for one operator: 4.1 us in place of 2.4 us for a tiny one (torch 2.13.0, CPU)."""
_SLOWING = ("with_stack", "profile_memory", "record_shapes", "with_modules")


def digest(path: Path) -> RankTrace:
    """Read a trace and sum it up. Raises `BadInput` when the file is none or cannot be read."""
    # The collector finds nothing to free in a growing heap of events: without it parsing is 1.5 to 4 times as fast.
    with collector_off():
        file, timeline = TraceFile(path), Timeline()
        for batch in file.batches():
            timeline.add(batch)
        return _summed_up(file, timeline)


def rank_in(name: str) -> int | None:
    """The rank that a file's name tells: 3 of `rank3.json`."""
    named = _RANK.search(name)
    return int(named[1][:9]) if named else None


def _summed_up(file: TraceFile, timeline: Timeline) -> RankTrace:
    window = steps_of(timeline)
    trusted, notes = integrity.check(file, timeline, window)
    distributed = file.header.distributed
    rank = distributed.rank if distributed and distributed.rank is not None else rank_in(file.path.name)
    found = RankTrace(
        path=str(file.path),
        rank=rank,
        world=distributed.world_size if distributed else None,
        events=file.events,
        device_names=list(dict.fromkeys(d.name for d in file.header.devices if d.name)),
        notes=notes,
        slowed=_slowing(file, timeline),
    )
    if window is None:
        found.notes.append(Note("everything", "the trace holds no operator and no kernel"))
        return found
    _add_times(found, timeline, window, trusted)
    return found


def _slowing(file: TraceFile, timeline: Timeline) -> list[str]:
    """The settings that were on, by the header or by what they leave behind."""
    found = [name for name in _SLOWING if getattr(file.header, name)]
    seen = {
        "with_stack": timeline.frames or timeline.stacks,
        "profile_memory": timeline.memory,
        "record_shapes": timeline.shapes or timeline.shaped,
    }
    return found + [name for name, there in seen.items() if there and name not in found]


def _add_times(found: RankTrace, timeline: Timeline, window: Window, trusted: bool) -> None:
    painted = phases.paint(timeline, window)
    time = device_time(timeline, window, painted, trusted)
    places = Places(timeline)
    found.steps = _steps(window, timeline)
    found.notes += _notes_on(found.steps)
    found.phases = phases.seconds(painted, window)
    if window.known:  # one batch, which is no step, is the start of an epoch
        found.loader = host.cost_of(timeline, "data", window, time, "input", places)
    if found.loader is not None:
        _leave_out_start(found, found.loader, window, host.idle_by_step(timeline, "data", window, time, "input"))
    found.collector = host.cost_of(timeline, "collector", window, time, "collector", places)
    found.compiled_steps = host.steps_with(timeline, "compile", window)
    if any(found.compiled_steps[1:]):  # that the first step compiles is as it should be
        found.compiling = host.cost_of(timeline, "compile", window, time, "compile", places)
    found.memory = host.memory_of(timeline, window)
    found.collectives = collectives.collectives_of(timeline, window, time, painted)
    if time is None:
        # A kernel may lie outside of what the host did, in a trace of a few events.
        where = "the trace holds no work of a device" + (" within the time of the host" if timeline.work else "")
        found.notes.append(Note("what the device did", where))
        found.layouts = _host_layouts(timeline, window, places)
        found.element_loops = element_loops(timeline, window, places)
        found.skewed = _host_skew(found)
        return
    _add_device(found, timeline, window, time, painted, places)


def _add_device(
    found: RankTrace, timeline: Timeline, window: Window, time: DeviceTime, painted: phases.Painted, places: Places
) -> None:
    found.gpu = summed_up(time)
    waiting = Waiting(timeline, time, painted, places)
    found.syncs, found.transfers = waiting.syncs()[:40], waiting.transfers()[:40]
    found.round_trips = waiting.round_trips()
    found.layouts = kernels.conversions(timeline, time, painted, places)
    found.precision = kernels.precision(time)
    found.misaligned = kernels.misaligned(timeline, time)
    for gap in time.gaps:
        if gap.reason == "launch":
            phase = gap.phase or "other"
            found.launches[phase] = found.launches.get(phase, 0.0) + (gap.end - gap.start) / time.steps / 1e6
    # Operators within others were counted, not kept.
    part = sum(window.holds(i.start) for i in timeline.operators) / max(1, len(timeline.operators))
    recording = part * timeline.operator_count / time.steps * RECORDING
    if time.step_seconds:  # the steps of a damaged trace may last no time
        found.recording_seconds = recording * sum(found.launches.values()) / time.step_seconds
    idle = found.gpu.idle
    found.skewed = {
        "compute": found.gpu.compute,
        "input": idle.get("input", 0.0),
        "idle": sum(v for k, v in idle.items() if k not in ("input", "device")),
    }
    others = {w.device for w in timeline.work if w.device != time.device}
    if others:
        listed = ", ".join(sorted(map(str, others)))
        found.notes.append(Note(f"devices {listed}", f"one process, several devices: {time.device} did most"))


def _steps(window: Window, timeline: Timeline) -> Steps:
    """All steps, and how long the steady ones take: on the device where there is one, which may lag behind the host."""
    lasts = sorted(_times(window))
    few = len(lasts) < FEWEST_FOR_PARTS
    last = len(lasts) - 1
    return Steps(
        count=len(lasts),
        seconds=total(window.device_runs) / len(lasts) / 1e6,
        found_by=window.found_by,
        durations=[(s.end - s.start) / 1e6 for s in window.every],
        numbers=[s.number for s in window.every],
        median=median(lasts) / 1e6,
        low=lasts[0 if few else round(last * 0.1)] / 1e6,
        high=lasts[last if few else round(last * 0.9)] / 1e6,
        apart=[StepApart(s.number, s.lasts / 1e6, s.apart, _most_of(s, timeline)) for s in window.apart],
        known=window.known,
    )


def _times(window: Window) -> list[float]:
    """What each steady step took: on the host, unless the device needs longer and sets the pace."""
    host, device = [s.end - s.start for s in window.steady], [s.lasts for s in window.steady]
    # A device that keeps up ends some steps sooner and some later than the host, which says nothing of the steps.
    return host if abs(sum(device) - sum(host)) <= KEEPS_UP * sum(host) else device


def _most_of(step: Step, timeline: Timeline) -> str:
    """What took more than half of a step, of what has a name of its own."""
    for kind, name in (("compile", "torch.compile"), ("data", "the loader"), ("collector", "the garbage collector")):
        spans = merged(map(stretch, timeline.spans.get(kind, ())))
        if total(within(spans, step.start, step.end)) > step.lasts / 2:
            return name
    return ""


def _notes_on(steps: Steps) -> list[Note]:
    """What is not said per step: everything where steps are not known, and the one that is not like the others."""
    if not steps.known:
        return [Note("what a step takes", "nothing in the trace marks its steps; call prof.step() after each one")]
    return [
        Note(f"step {s.number}", f"it took {s.seconds:.3g} s{f', most of it {s.most}' if s.most else ''}: in no figure")
        for s in steps.apart
        if s.why == "long"
    ]


def _leave_out_start(found: RankTrace, loader: Cost, window: Window, idle: list[float]) -> None:
    """One wait that is longer than all others together is the start of an epoch, not how the loader always is."""
    longest = max(idle)
    whole = found.steps.seconds * found.steps.count if found.steps is not None else 0.0
    if len(idle) >= FEWEST_TO_LEAVE_OUT and longest > MOST_OF_IT * sum(idle) and longest > WORTH_SAYING * whole:
        loader.seconds = (sum(idle) - longest) / (len(idle) - 1)
        loader.duration = min(loader.duration, loader.seconds)
        number = window.steady[idle.index(longest)].number
        reason = f"{longest:.3g} s at step {number} alone: as at the start of an epoch; left out of the loader's share"
        found.notes.append(Note("one wait for data", reason))


def _host_skew(found: RankTrace) -> dict[str, float]:
    """On the CPU: the phases, without what the collectives take."""
    steps = found.steps.count if found.steps is not None else 1
    waited = sum(c.duration for c in found.collectives) / steps
    own = sum(v for k, v in found.phases.items() if k != "data") - waited
    return {"input": found.phases.get("data", 0.0), "host": max(0.0, own)}


def _host_layouts(timeline: Timeline, window: Window, places: Places) -> list[Cost]:
    """Without a device: the time in `aten::contiguous` on the thread that takes the steps."""
    own = (i for i in timeline.operators if i.name == "aten::contiguous" and i.thread == window.thread)
    items = [i for i in own if window.holds(i.start)]
    duration = total(common(merged(map(stretch, items)), window.spans)) / len(window.spans) / 1e6
    if not duration:
        return []
    longest = max(items, key=lambda i: i.end - i.start)
    return [
        Cost(
            "aten::contiguous",
            seconds=duration,
            duration=duration,
            count=len(items) / len(window.spans),
            where=places.at(longest.start, longest.thread),
        )
    ]
