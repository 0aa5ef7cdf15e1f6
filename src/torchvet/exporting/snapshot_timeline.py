"""A device's memory over time: bytes by category and reserved, steps, phases, the peak, what did not fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.snapshots.timeline import Clock, by_category, clock_of

if TYPE_CHECKING:
    from torchvet.exporting.chrome import Chrome
    from torchvet.snapshots.memory import DeviceMemory

SLICES = 20_000
_STEPS, _PHASES, _MARKS = 1, 2, 3


def add_device(chrome: Chrome, device: DeviceMemory) -> None:
    """Add a process for a device."""
    name = f"{Path(device.snapshot.path).name}: device {device.device}"
    told = f" (told by {device.phases.told_by})" if device.phases.told_by else ""
    chrome.begin(name, {_STEPS: f"steps{told}", _PHASES: "phases", _MARKS: "peak and failures"})
    clock = clock_of(device)
    if clock is None:
        chrome.note(f"time of {name}", "the number of the event: this snapshot has no times")
        clock = int
    _add_counters(chrome, device, clock)
    _add_slices(chrome, device, clock)
    _add_marks(chrome, device, clock)


def _add_counters(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    for at, held, reserved in by_category(device):
        time = clock(at)
        chrome.counter("bytes in use", time, {"bytes": sum(held.values())})
        if held:  # a counter of nothing is none
            chrome.counter("bytes by category", time, held)
        chrome.counter("bytes reserved", time, {"bytes": reserved})


def _add_slices(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    """Steps and phases; of more than can be looked at, the first."""
    number, phases = len(device.lifetimes.trace), device.phases
    begun = 0
    for step, end in enumerate(phases.boundaries[:SLICES]):
        chrome.slice(_STEPS, f"step {step}", clock(begun), clock(end), first_event=begun)
        begun = end
    for run in phases.runs[:SLICES]:
        chrome.slice(_PHASES, run.kind, clock(run.start), clock(min(run.end, number - 1)), first_event=run.start)
    if max(len(phases.boundaries), len(phases.runs)) > SLICES:
        chrome.note(f"slices of device {device.device}", f"only the first {SLICES:,} steps and phases are shown")


def _add_marks(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    trace, peak = device.lifetimes.trace, device.peak
    chrome.instant(
        _MARKS, f"peak: {size(peak.bytes)}", clock(peak.at), bytes=peak.bytes, event=peak.at, **peak.by_category
    )
    for at in device.ooms[:SLICES]:
        name = f"out of memory: {size(trace.sizes[at])} asked for"
        chrome.instant(_MARKS, name, clock(at), requested=trace.sizes[at], driver_free=trace.addresses[at], event=at)
