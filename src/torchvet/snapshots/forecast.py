"""In which step memory ends: the first whose peak, and not what is left at its end, does not fit."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torchvet.snapshots.growth import WARMING

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory


def first_above(memory: DeviceMemory, limit: int) -> int | None:
    """The first recorded step (from 0) in which more than `limit` bytes were in use; None where none was."""
    lifetimes = memory.lifetimes
    if lifetimes.peak <= limit:
        return None
    at = next((n for n, used in enumerate(lifetimes.active) if used > limit), 0)
    return memory.phases.step(at)


def exhausted_at(memory: DeviceMemory, per_step: float, limit: int) -> int | None:
    """The step (from 0) in which `limit` bytes do not suffice, where each leaves `per_step` bytes more; None: never."""
    recorded = first_above(memory, limit)
    if recorded is not None or per_step <= 0:
        return recorded
    bounds, active = memory.phases.boundaries, memory.lifetimes.active
    if not bounds:
        return None
    # The steps to come are taken to be as large as the largest so far; the first ones may have set things up.
    steps = list(pairwise(bounds))[WARMING - 1 :]
    within = max((max(active[a:b], default=0) - active[a - 1] for a, b in steps), default=0)
    left = limit - active[bounds[-1] - 1] - max(0, within)
    return len(bounds) + (int(left // per_step) + 1 if left >= 0 else 0)
