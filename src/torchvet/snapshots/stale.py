"""Results of one step that live into the next one's peak."""

from __future__ import annotations

from torchvet.snapshots.categories import ACTIVATIONS
from torchvet.snapshots.memory import DeviceMemory
from torchvet.snapshots.places import FORWARD, USER, Place
from torchvet.snapshots.state_at import Row

_OFTEN = 2


def stale_at_peak(memory: DeviceMemory) -> Row | None:
    """The line with most bytes of the step before in use at the peak, freed later in the step; None where there is
    none.

    It must do so in two steps or more: one batch that is kept for a moment longer is no habit.
    """
    phases, lifetimes = memory.phases, memory.lifetimes
    trace, found = lifetimes.trace, dict[Place, Row]()
    if len(phases.boundaries) < 2:
        return None
    here = phases.step(memory.peak.at)
    for start in memory.peak.blocks:
        place = memory.stacks[trace.stacks[start]].place
        end = lifetimes.let_go[start]
        # What is never freed, or lives longer than one step, is growth and not a result that is replaced.
        one_over = phases.step(start) == here - 1 and end < len(trace) and phases.step(end) == here
        if not one_over or place is None or phases.kind(start) not in (FORWARD, USER):
            continue
        if memory.peak.category[start] == ACTIVATIONS:
            found.setdefault(place, Row(place=place)).add(trace.sizes[start])
    rows = [row for row in found.values() if _habit(memory, row.place)]
    return max(rows, key=lambda row: row.bytes, default=None)


def _habit(memory: DeviceMemory, place: Place | None) -> bool:
    """Whether several steps each leave something of this line to the next."""
    phases, lifetimes = memory.phases, memory.lifetimes
    stacks = {n for n, facts in enumerate(memory.stacks) if facts.place == place}
    of_line = (s for s in lifetimes.starts if lifetimes.trace.stacks[s] in stacks)
    crossing = {phases.step(s) for s in of_line if phases.crossed(s, lifetimes.let_go[s]) == 1}
    return len(crossing) >= _OFTEN
