"""Notes clip functions that are given an iterator which has been used up."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Place, frames
from torchvet.recording.records.passes import UsedUpIterator

_MOST_PLACES = 64
_DEEPEST = 4
_LAZY = (filter, map, zip, enumerate)


class UsedUpIterators:
    """What clip functions are given in sampled steps, by line."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._records: dict[Place, UsedUpIterator] = {}

    def given(self, what: str, parameters: Any) -> None:
        """A clip function is called. What it is given is not gone through."""
        place = frames.user_place(2)
        known = self._records.get(place) if place is not None else None
        if known is not None:
            known.calls += 1
        if place is None or not isinstance(parameters, Iterator) or not is_used_up(parameters):
            return
        trained = self._with_gradients()
        if known is None and trained and len(self._records) < _MOST_PLACES:
            known = self._records[place] = UsedUpIterator(place=place, what=what, calls=1)
        # Without gradients there is nothing that is not clipped.
        if known is not None and trained:
            known.used_up, known.trained = known.used_up + 1, trained

    def _with_gradients(self) -> int:
        owned = {id(p): p for o in self._host.known.live_optimizers() for g in o.param_groups for p in g["params"]}
        return sum(gradient_of(p) is not None for p in owned.values())

    def records(self) -> list[UsedUpIterator]:
        """The lines that gave one that was used up."""
        return [one for one in self._records.values() if one.used_up]


def is_used_up(iterator: Any, depth: int = 0) -> bool:
    """Whether an iterator has come to its end, as far as that is known without asking it."""
    if isinstance(iterator, GeneratorType):
        if iterator.gi_frame is None:
            return True
        # One that has begun goes on from where it is.
        if iterator.gi_code.co_name != "<genexpr>" or iterator.gi_running:
            return False
    elif not isinstance(iterator, _LAZY):
        return False
    # `map` and `zip` hold a tuple of what they go through.
    held = (part for one in gc.get_referents(iterator) for part in (one if isinstance(one, tuple) else (one,)))
    inner = [one for one in held if isinstance(one, Iterator)]
    return depth < _DEEPEST and any(is_used_up(one, depth + 1) for one in inner)
