"""Which lines make loaders."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torchvet.probes.base.callers import called_by_user
from torchvet.probes.base.kit import Place


class MadeLoaders:
    """The lines that made loaders, by their identity: a loader's own `__eq__` is the program's."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[Any], Place]] = {}

    def note(self, loader: Any) -> Place | None:
        """Called within a loader's constructor: the user's line that calls it."""
        place = called_by_user()
        if place is not None:
            self._made = {key: known for key, known in self._made.items() if known[0]() is not None}
            self._made[id(loader)] = weakref.ref(loader), place
        return place

    def line_of(self, loader: Any) -> Place | None:
        """The line that made a loader."""
        known = self._made.get(id(loader))
        return known[1] if known is not None and known[0]() is loader else None

    def of(self, iterator: Any) -> Iterator[Place]:
        """The lines that made the loader of an iterator."""
        # Private; it is what an iterator shares with its loader.
        sampler = getattr(iterator, "_index_sampler", None)
        loaders = [(ref(), at) for ref, at in self._made.values()]
        return (at for loader, at in loaders if getattr(loader, "_index_sampler", None) is sampler)
