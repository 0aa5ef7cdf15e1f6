"""Segments that `empty_cache()` gave back, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from torchvet.allocator.sizes import SMALL_SEGMENT
from torchvet.readers.snapshot import OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace
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
    """Segments given back without need: by a call that the stack names, or although the next request would have fitted
    into one of them. The allocator itself gives back only when nothing cached fits, or above a threshold if one is set.
    """
    steps = len(memory.phases.boundaries)
    if steps < _FEWEST or float(memory.snapshot.settings.get("garbage_collection_threshold") or 0) > 0:
        return None
    trace = memory.lifetimes.trace
    asked = [at for group in _groups(trace) if _needless(memory, group) for at in group]
    inside = [at for at in asked if 0 < memory.phases.step(at) <= steps]
    if not inside or SEGMENT_ALLOC not in trace.actions[inside[0] :]:
        return None
    with_any = {memory.phases.step(at) for at in inside}
    place = next((memory.stacks[trace.stacks[at]].place for at in inside if _calls(memory, at)), None)
    return GivenBack(len(inside), sum(trace.sizes[at] for at in inside), steps, len(with_any) / steps, place)


def _groups(trace: Trace) -> list[list[int]]:
    """Segments given back one right after the other."""
    found: list[list[int]] = []
    for at in trace.where(SEGMENT_FREE):
        if found and found[-1][-1] == at - 1:
            found[-1].append(at)
        else:
            found.append([at])
    return found


def _needless(memory: DeviceMemory, group: list[int]) -> bool:
    """Whether a call gave them back, and not a request that nothing cached could serve."""
    if _calls(memory, group[0]):
        return True
    trace = memory.lifetimes.trace
    following = trace.actions.find(SEGMENT_ALLOC, group[-1])
    if following < 0 or OOM in trace.actions[group[-1] : following]:
        return False
    asked = trace.sizes[following]
    same_pool = [trace.sizes[at] for at in group if (trace.sizes[at] <= SMALL_SEGMENT) == (asked <= SMALL_SEGMENT)]
    return max(same_pool, default=0) >= asked


def _calls(memory: DeviceMemory, at: int) -> bool:
    """Whether the stack shows who called empty_cache: torch may write the segment's own stack instead."""
    frames = memory.snapshot.frames
    stack = memory.snapshot.stacks[memory.lifetimes.trace.stacks[at]]
    return any(frames[n].name in ("empty_cache", "emptyCache") for n in stack)
