"""Bytes by stack: what was in use at a device's peak, and what its steps leave behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.exporting.stacks import Profile, Stack, StackFrame
from torchvet.snapshots.places import BACKWARD

if TYPE_CHECKING:
    from torchvet.snapshots.growth import Growth
    from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory
    from torchvet.snapshots.places import Place


def profiles_of(memory: SnapshotMemory) -> Iterator[Profile]:
    """One or two profiles a device."""
    for device in memory.devices:
        where = f"{Path(memory.snapshot.path).name}, device {device.device}"
        yield Profile(f"{where}: in use at the peak", "bytes", _largest_first(at_peak(device)))
        growth = device.growth
        if growth is not None and growth.leaks:
            name = f"{where}: left behind by a step (mean of {growth.steps})"
            yield Profile(name, "bytes", _largest_first(left_behind(device, growth)))


def at_peak(device: DeviceMemory) -> Mapping[Stack, float]:
    """Bytes in use at the peak by stack; they add up to it."""
    peak, trace, found = device.peak, device.lifetimes.trace, defaultdict[Stack, float](int)
    known: dict[tuple[int, str, Place | None], Stack] = {}
    for start in peak.blocks:
        number, category = trace.stacks[start], peak.category[start]
        facts = device.stacks[number]
        # A block of the engine's thread has no line of its own: the forward's may be told by the order of events.
        place = peak.forward_line(start) if facts.place is None and facts.kind == BACKWARD else None
        key = (number, category, place)
        stack = known.get(key)
        if stack is None:
            beneath = StackFrame(f"backward of {place.text}", place.path, place.line) if place else None
            stack = known[key] = stack_of(device, number, category, beneath)
        found[stack] += trace.sizes[start]
    for block in peak.older:
        found[stack_of(device, block.stack, peak.categories.older[block])] += block.size
    return found


def left_behind(device: DeviceMemory, growth: Growth) -> Mapping[Stack, float]:
    """Bytes that a step leaves behind, by stack; they add up to what the growth explains."""
    found = defaultdict[Stack, float](float)
    for leak in growth.leaks:
        for number, left in zip(leak.stacks, leak.by_stack, strict=True):
            found[stack_of(device, number, device.stacks[number].kind)] += left / leak.steps
    return found


def stack_of(device: DeviceMemory, number: int, category: str, beneath: StackFrame | None = None) -> Stack:
    """A stack's frames of Python; where it has none, a root by category, with the operator or what else is known."""
    python = python_frames(device, number)
    if python:
        return python
    operator = device.stacks[number].operator
    root = StackFrame(f"{category} (no Python frames)")
    return (root, beneath) if beneath else (root, StackFrame(operator)) if operator else (root,)


def python_frames(device: DeviceMemory, number: int) -> Stack:
    """The frames of Python, outermost first."""
    frames = (device.snapshot.frames[n] for n in reversed(device.snapshot.stacks[number]))
    return tuple(StackFrame(_named(f.name, f.path, f.line), f.path, f.line) for f in frames if f.python)


def _named(name: str, path: str, line: int) -> str:
    """With the line, since speedscope's boxes show the name alone and one function allocates on several lines."""
    short = path.replace("\\", "/").rpartition("/")[2]
    return f"{name} ({short}:{line})"


def _largest_first(weights: Mapping[Stack, float]) -> list[tuple[Stack, float]]:
    return sorted(weights.items(), key=lambda entry: -entry[1])
