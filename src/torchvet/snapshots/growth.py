"""What is left over from every step: bytes per step by the line that allocated them.

A block leaks where steps all along the recording made one like it, and none of those has been freed since. Amounts are
compared, not sets of stacks: a leak on a line that also allocates what is freed is seen by what stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.snapshots.places import FORWARD, Place

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory

FEWEST = 8
"""Steps below which growth cannot be told from warming up."""
WARMING, _RUNNING = 2, 2
"""Steps at the beginning that may set things up, and at the end whose blocks may yet be freed."""
_THIRDS = 3


@dataclass(frozen=True)
class Leak:
    """One line whose blocks stay: `left` bytes in `blocks` from `steps` steps, the first of which was `first`."""

    place: Place | None
    kinds: frozenset[str]
    stacks: tuple[int, ...]
    left: int
    blocks: int
    steps: int
    with_blocks: int
    total: int
    total_blocks: int
    by_stack: tuple[int, ...]
    """Of `left`, the bytes of each of `stacks`."""

    @property
    def per_step(self) -> float:
        """Bytes that a step leaves behind."""
        return self.left / self.steps


@dataclass(frozen=True)
class Growth:
    """What grows on a device, the fastest first. `steps` are those that were compared."""

    leaks: tuple[Leak, ...]
    steps: int
    per_step: float
    """The slope of the bytes in use at the ends of the steps compared."""

    @property
    def explained(self) -> float:
        """Bytes per step that the leaks account for."""
        return sum(leak.per_step for leak in self.leaks)


def growth_of(memory: DeviceMemory) -> Growth | None:
    """What grows from step to step; None where the steps are too few to say."""
    bounds = memory.phases.boundaries
    compared = len(bounds) - WARMING - _RUNNING
    if len(bounds) < FEWEST:
        return None
    # The first steps set things up; blocks of the last ones may still be freed.
    first, last = bounds[WARMING - 1], bounds[len(bounds) - 1 - _RUNNING]
    active = memory.lifetimes.active
    slope = (active[last - 1] - active[first - 1]) / compared
    survivors = _survivors(memory)
    leaks = [leak for group in survivors.values() if (leak := _leak(memory, group, first, last, compared))]
    return Growth(tuple(sorted(leaks, key=lambda leak: -leak.left)), compared, slope)


def _survivors(memory: DeviceMemory) -> dict[Place | int, list[int]]:
    """Blocks made in any step that are in use at the end, by their line; by their stack where it shows none."""
    lifetimes = memory.lifetimes
    ends, number, stacks = lifetimes.let_go, len(lifetimes.trace), lifetimes.trace.stacks
    found: dict[Place | int, list[int]] = defaultdict(list)
    for start in lifetimes.starts:
        if ends[start] == number:
            place = memory.stacks[stacks[start]].place
            found[place if place is not None else stacks[start]].append(start)
    return found


def _leak(memory: DeviceMemory, group: list[int], first: int, last: int, steps: int) -> Leak | None:
    """The leak that a line's survivors are; None where they are a last state, a cache that has filled, or a window."""
    trace, phases = memory.lifetimes.trace, memory.phases
    inside = [s for s in group if first <= s < last]
    made_in = {phases.step(s) for s in inside}
    if len(made_in) < 3 or not _all_along(made_in, phases.step(first), steps):
        return None
    by_stack = Counter[int]()
    for start in inside:
        by_stack[trace.stacks[start]] += trace.sizes[start]
    stacks = tuple(sorted(by_stack))
    kinds = frozenset(memory.stacks[n].kind for n in stacks)
    # The first call of a line may set up more for good than each step leaves: cuBLAS its workspace.
    largest = max(trace.sizes[s] for s in inside)
    alike = [s for s in group if trace.sizes[s] <= largest]
    return Leak(
        place=memory.stacks[stacks[0]].place,
        kinds=kinds,
        stacks=stacks,
        left=sum(trace.sizes[s] for s in inside),
        blocks=len(inside),
        steps=steps,
        with_blocks=len(made_in),
        total=sum(trace.sizes[s] for s in alike),
        total_blocks=len(alike),
        by_stack=tuple(by_stack[n] for n in stacks),
    )


def _all_along(made_in: set[int], first: int, steps: int) -> bool:
    """Whether the early, the middle and the late third of the steps each left something, and about equally often."""
    # A cache that has filled left blocks only early, a window of the last results only late.
    thirds = [0] * _THIRDS
    for step in made_in:
        thirds[min(_THIRDS - 1, (step - first) * _THIRDS // max(1, steps))] += 1
    return min(thirds) >= 1 and 2 * min(thirds) >= max(thirds) - 1


def keeps_graph(leak: Leak, all_leaks: tuple[Leak, ...]) -> bool:
    """Whether what stays is what a forward pass saved, rather than single results: several of its lines at once."""
    forward = [other for other in all_leaks if other.kinds == {FORWARD}]
    return leak.kinds == {FORWARD} and len(forward) >= 3
