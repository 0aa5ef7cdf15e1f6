"""Which modules made what is in use at the peak: a snapshot knows lines, and a library's model has none of a user's."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from torch import nn

from torchvet.recording.records.dry import DryModule
from torchvet.simulate.allocation.history import Event
from torchvet.simulate.dry.limits import made_in

_MOST = 20
# The blocks of one list are one row: `layers.3.mlp` and `layers.4.mlp` are both `layers.*.mlp`.
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def modules_at_peak(
    events: Iterable[Event], lost: int, roots: Iterable[nn.Module], left_out: Iterable[int]
) -> list[DryModule]:
    """The modules with most, the largest first; what was made outside of modules is left out, and blocks at
    the addresses `left_out`. `lost` events came before those that there are."""
    names = _names(roots)
    found: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    passed_by = set(left_out)
    for number, (address, size) in _alive_at_peak(list(events)).items():
        if address in passed_by:
            continue
        # Events are numbered from the run's beginning, the list from the first that is still kept.
        name = names.get(made_in.get((0, lost + number), 0))
        if name is not None:
            found[name] += size
            blocks[name] += 1
    return [DryModule(name=name, bytes=held, blocks=blocks[name]) for name, held in found.most_common(_MOST)]


def _names(roots: Iterable[nn.Module]) -> dict[int, str]:
    named = (pair for root in roots for pair in root.named_modules())
    return {id(module): _NUMBER.sub("*", path) or type(module).__name__ for path, module in named}


def _alive_at_peak(events: list[Event]) -> dict[int, tuple[int, int]]:
    """Addresses and sizes in bytes, by the number of the event that made them."""
    held = at = 0
    most = -math.inf  # below zero, where blocks are freed whose making was lost
    for number, event in enumerate(events):
        held += event.size if event.action == "alloc" else -event.size if event.action == "free_completed" else 0
        if held > most:
            most, at = held, number
    by_address: dict[int, int] = {}
    for number, event in enumerate(events[: at + 1]):
        if event.action == "alloc":
            by_address[event.address] = number
        elif event.action == "free_completed":
            # Its making may be among the lost events.
            by_address.pop(event.address, None)
    return {number: (address, events[number].size) for address, number in by_address.items()}
