"""Segments that `empty_cache()` gave back, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from torchvet.readers.snapshot import OOM, SEGMENT_ALLOC, SEGMENT_FREE
from torchvet.snapshots.memory import DeviceMemory
from torchvet.snapshots.places import Place

_FEWEST = 4


@dataclass(frozen=True)
class GivenBack:
    """What was given back over all `steps`, and in which share of them; `place` where frames tell the call."""

    segments: int
    bytes: int
    steps: int
    share: float
    place: Place | None


def given_back(memory: DeviceMemory) -> GivenBack | None:
    """Segments given back without need. The allocator gives back by itself only when a request does not fit: then the
    next event is the driver's answer, and those are left out."""
    steps = len(memory.phases.boundaries)
    if steps < _FEWEST:
        return None
    trace = memory.lifetimes.trace
    freed = [at for at, code in enumerate(trace.actions) if code == SEGMENT_FREE]
    asked = [at for at in freed if not _pressed(trace.actions, at)]
    inside = [at for at in asked if 0 < memory.phases.step(at) <= steps]
    if not inside or SEGMENT_ALLOC not in trace.actions[inside[0] :]:
        return None
    with_any = {memory.phases.step(at) for at in inside}
    place = next((memory.stacks[trace.stacks[at]].place for at in inside if _calls(memory, at)), None)
    return GivenBack(len(inside), sum(trace.sizes[at] for at in inside), steps, len(with_any) / steps, place)


def _pressed(actions: bytes, at: int) -> bool:
    """Whether a segment was given back because a request did not fit."""
    while at < len(actions) and actions[at] == SEGMENT_FREE:
        at += 1
    return at < len(actions) and actions[at] in (SEGMENT_ALLOC, OOM)


def _calls(memory: DeviceMemory, at: int) -> bool:
    """Whether the stack shows who called empty_cache: torch may write the segment's own stack instead."""
    frames = memory.snapshot.frames
    stack = memory.snapshot.stacks[memory.lifetimes.trace.stacks[at]]
    return any(frames[n].name in ("empty_cache", "emptyCache") for n in stack)
