"""Whether steps keep asking for sizes that no step before has asked for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from torchvet.snapshots.failure import driver_calls
from torchvet.snapshots.memory import DeviceMemory
from torchvet.snapshots.places import FORWARD, Place

_FEWEST = 12
_LATE = 2
"""The part of the steps that is judged: the later half, when what recurs has been seen."""
_LARGE = 1 << 20
"""Sizes that matter: smaller ones share segments of 2 MiB whatever their size."""


@dataclass(frozen=True)
class Churn:
    """How the later half of the steps behaves. `new_share` is the share of their forward's bytes in sizes never seen
    before, `with_new` the share of steps that have any, `driver_share` that of steps that went to the driver."""

    steps: int
    with_new: float
    new_share: float
    driver_share: float
    sizes: int
    place: Place | None


def churn_of(memory: DeviceMemory) -> Churn | None:
    """The churn of a device's forward passes; None where the steps are too few."""
    phases, trace, stacks = memory.phases, memory.lifetimes.trace, memory.lifetimes.trace.stacks
    steps = len(phases.boundaries)
    if steps < _FEWEST:
        return None
    late = steps - steps // _LATE
    seen: set[tuple[int, int]] = set()
    new, whole = defaultdict[int, int](int), 0
    places, sizes = defaultdict[Place | None, int](int), set[int]()
    bounds, step = [*phases.boundaries, len(trace)], 0
    for start in memory.lifetimes.starts:
        while start >= bounds[step]:
            step += 1
        size, stack = trace.sizes[start], stacks[start]
        if size < _LARGE or phases.kinds[stack] != FORWARD or step >= steps:
            continue
        whole += size if step >= late else 0
        # With its stack: a size that another line has used before is new all the same.
        if (stack, size) not in seen:
            seen.add((stack, size))
            if step >= late:
                new[step] += size
                sizes.add(size)
                places[memory.stacks[stack].place] += size
    judged = steps - late
    calls = driver_calls(memory)
    return Churn(
        steps=judged,
        with_new=len(new) / judged,
        new_share=sum(new.values()) / whole if whole else 0.0,
        driver_share=sum(1 for s in range(late, steps) if calls.get(s)) / judged,
        sizes=len(sizes),
        place=max(places, key=lambda p: places[p], default=None),
    )
