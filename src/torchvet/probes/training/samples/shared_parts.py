"""Watches the parts of a split: whether something was set on the data set that they share, and all parts read it so."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils.data import Subset

from torchvet.probes.base.kit import Host, Place, SiteWatcher, frames, tap
from torchvet.recording.records.reading import SET_APART, SharedParts

_NOTHING = (id(None), False, "", 0)
_PARTS, _READS = 64, 64
"""Parts that are followed, and batches of each."""


class _Part:
    """A subset: where it was made, what its data set had then, and what that had at each batch that was read."""

    def __init__(self, subset: Any, data: Any, place: Place | None) -> None:
        self.ref, self.place, self.data = weakref.ref(subset), place, id(data)
        self.first = _attributes(data)
        self.read: dict[str, set[object]] = {}
        self.reads = 0

    def look(self, data: Any) -> None:
        """A batch is read."""
        self.reads += 1
        for name, value in _attributes(data).items():
            self.read.setdefault(name, set()).add(value)


class SharedPartsProbe(SiteWatcher[tuple[Place, str], SharedParts]):
    """Attributes that were set after a split, and that all its parts were read with."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._parts: dict[int, _Part] = {}
        self.ignored = frozenset({"batch_got"})  # until a data set is split

    def install(self) -> None:
        """Hear of each subset that is made."""
        self.replace(Subset, "__init__", tap(self.host, "parts of a split", before=self._made))

    def _made(self, subset: Any, dataset: Any, indices: Any = None) -> None:
        if len(self._parts) < _PARTS:
            self._parts[id(subset)] = _Part(subset, dataset, frames.user_place())
            self.heed()

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        data: Any = iterator._dataset
        part = self._parts.get(id(data)) if isinstance(data, Subset) else None
        whole = getattr(data, "dataset", None)
        # An identity may have been given out again, and a part may have been given a data set of its own.
        if part is None or part.ref() is not data or part.reads >= _READS or id(whole) != part.data:
            return
        part.look(whole)
        if part.reads >= _READS:
            self.hear_in_samples("batch_got")
        place = part.place
        if place is None:
            return
        if part.reads == 1:
            self._compare(part, place)
        for name, values in part.read.items():
            if len(values) > 1:
                # Set again and again, before each part is read.
                self.sites.pop((place, name), None)

    def _compare(self, part: _Part, place: Place) -> None:
        others = [one for one in self._parts.values() if one.place == place and one.data == part.data and one.reads]
        for name, value in part.first.items():
            now = {held for one in others for held in one.read.get(name, ())}
            if len(others) > 1 and len(now) == 1 and value not in now:
                self.sites[place, name] = SharedParts(
                    place, name, len(others), had=value not in (id(None), False, "", 0)
                )


def _attributes(data: Any) -> dict[str, object]:
    """What tells training from evaluation, by value where that is a word or a number, else by identity."""
    held = vars(data) if hasattr(data, "__dict__") else {}
    return {
        name: value if isinstance(value, (bool, str, int)) else id(value)
        for name, value in held.items()
        if SET_APART.search(name)
    }
