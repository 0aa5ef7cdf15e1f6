"""Reads how much memory the workers of a loader have for themselves, and what Python objects their data set keeps."""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from torch.utils.data import DataLoader

from torchvet.probes.base.kit import Host, Place, Record, Watcher, tap
from torchvet.probes.time.loaders.made import MadeLoaders
from torchvet.recording.records.memory import HeldObjects, WorkerMemory

_WHAT = "memory of loaders' workers"
_EVERY, _SHARE = 0.1, 50
"""Seconds between two looks, longer by as much after each, and times as long as the last look took."""
_FREE = 6
"""Looks for which that share does not hold: a short run would have too few."""
_LOOKS = 64
"""Looks that are kept; then every second one is forgotten."""
_ITERATORS = 16
_FEWEST = 1_000
"""Items below which what a container costs in every worker does not matter. Chosen, not measured."""
_SAMPLES, _PARTS, _DEEP = 64, 64, 3
"""Items that are measured, the objects within one that are, and how deep."""
_WITHIN = ("dataset", "datasets")
"""Where a data set keeps another: torch's own names."""
_PLAIN = (str, bytes, bytearray, int, float, complex)
_CONTAINERS = (list, tuple, dict)
_SWAPPED, _PRESENT, _EXCLUSIVE = 1 << 62, 1 << 63, 1 << 56
"""Bits of a page's entry in `/proc/PID/pagemap`: it is swapped out, is in memory, no other process has it."""


class Container(NamedTuple):
    """Objects that a data set keeps, and where in memory some of them lie."""

    objects: HeldObjects
    addresses: list[int]


class _Followed:
    """One iterator."""

    def __init__(self, iterator: Any, record: WorkerMemory, held: list[Container]) -> None:
        self.iterator = weakref.ref(iterator)
        self.record = record
        self.held = held
        self.given = 0
        self.next = 0.0


class WorkerMemoryProbe(Watcher):
    """Workers that are forked share their parent's pages until they write to them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._loaders = MadeLoaders()
        self._followed: dict[int, _Followed] = {}
        self._records: list[WorkerMemory] = []

    def install(self) -> None:
        """Note where loaders are made."""
        self.replace(DataLoader, "__init__", tap(self.host, "where loaders are made", after=self._made))

    def _made(self, _: None, loader: Any, *__: Any, **___: Any) -> None:
        self._loaders.note(loader)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        # Private: the processes. Without workers, and in other loaders, there are none.
        workers = getattr(iterator, "_workers", None)
        if not workers:
            return
        known = self._followed.get(id(iterator))
        if known is None or known.iterator() is not iterator:
            known = self._follow(iterator, len(workers))
        if known is None:
            return
        known.given += 1
        if time.perf_counter() >= known.next:
            with self.host.looking(_WHAT):
                self._look(known, workers)

    def _follow(self, iterator: Any, workers: int) -> _Followed | None:
        if len(self._records) >= _ITERATORS:
            return None
        self._followed = {key: one for key, one in self._followed.items() if one.iterator() is not None}
        place: Place | None = next(self._loaders.of(iterator), None)
        held = list(_objects(getattr(iterator, "_dataset", None)))
        objects = [one.objects for one in held]
        record = WorkerMemory(id=len(self._records), place=place, workers=workers, held=objects)
        self._records.append(record)
        known = self._followed[id(iterator)] = _Followed(iterator, record, held)
        return known

    def _look(self, known: _Followed, workers: Any) -> None:
        began = time.perf_counter()
        private = [_private(worker.pid) for worker in workers]
        record = known.record
        # One that has ended says nothing of the others.
        if all(private):
            record.batches.append(known.given)
            record.private.append(sum(filter(None, private)))
            record.held = [replace(one.objects, copied=_copied(workers, one.addresses)) for one in known.held]
        if len(record.batches) > _LOOKS:
            record.batches, record.private = record.batches[::2], record.private[::2]
        now = time.perf_counter()
        looks = len(record.batches)
        known.next = now + max(_EVERY * looks, _SHARE * (now - began) * (looks >= _FREE))

    def totals(self, tick: int) -> Iterable[Record]:
        """Each iterator's."""
        return [one for one in self._records if one.batches]


def _private(pid: int) -> int | None:
    """Bytes that a process has written to and shares with none; None where the system does not say so."""
    try:
        text = Path("/proc", str(pid), "smaps_rollup").read_text("ascii")
    except (OSError, ValueError):
        return None
    rows = (line.split() for line in text.splitlines() if line.startswith("Private_Dirty:"))
    return sum(int(row[1]) * 1024 for row in rows)


def _copied(workers: Any, addresses: list[int]) -> float | None:
    """The share of the pages with these addresses that workers have for themselves, their mean."""
    shares = [_own(worker.pid, addresses) for worker in workers]
    told = [one for one in shares if one is not None]
    return sum(told) / len(told) if told and len(told) == len(shares) else None


def _own(pid: int, addresses: list[int]) -> float | None:
    """That share of one process; None where the system does not say so."""
    entries = []
    try:
        with Path("/proc", str(pid), "pagemap").open("rb", 0) as table:
            for address in addresses:
                raw = os.pread(table.fileno(), 8, address // mmap.PAGESIZE * 8)
                entries.append(int.from_bytes(raw, sys.byteorder))
    except OSError:
        return None
    # What is swapped out may be the worker's or not.
    known = [one for one in entries if not one & _SWAPPED]
    return sum(one & _PRESENT and one & _EXCLUSIVE != 0 for one in known) / len(known) if known else None


def _objects(dataset: Any, name: str = "", deep: int = _DEEP) -> Iterator[Container]:
    """Large containers of Python objects among the attributes of a data set, and of those that it is made of."""
    # No attribute is asked for: that may run code of the program's.
    try:
        attributes: dict[str, Any] = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return
    for key, value in list(attributes.items()):
        if type(value) in _CONTAINERS and len(value) >= _FEWEST:
            size = _size(value)
            if size:
                owner, kind = type(dataset).__name__, type(value).__name__
                objects = HeldObjects(name=f"{name}{key}", owner=owner, kind=kind, items=len(value), bytes=size)
                yield Container(objects, _addresses(value))
        elif key in _WITHIN and deep:
            inner = value if type(value) in (list, tuple) else [value]
            for one in inner[:_PARTS]:
                yield from _objects(one, f"{name}{key}.", deep - 1)


def _size(container: Any) -> int:
    """Bytes of the objects in a container, by a sample of its items; 0 where these are arrays or tensors alone."""
    measured = [_deep(one, _DEEP) for one in _some(container)]
    return round(sum(measured) / len(measured) * len(container))


def _addresses(container: Any) -> list[int]:
    """Where some items lie: what is read of a dict are its values."""
    return [id(one[1] if type(container) is dict else one) for one in _some(container)]


def _some(container: Any) -> list[Any]:
    """Some items of a container."""
    # By slices: to go through all would write to the pages that workers share.
    rows = container.items() if type(container) is dict else container[:: max(1, len(container) // _SAMPLES)]
    return list(itertools.islice(rows, _SAMPLES))


def _deep(value: Any, deep: int) -> int:
    """Bytes of a plain object and those within it. What is of another class is not asked: that may run its code."""
    if type(value) in _PLAIN:
        return sys.getsizeof(value)
    if type(value) not in _CONTAINERS or not deep:
        return 0
    parts: Sized = value
    inner = itertools.chain(value.keys(), value.values()) if type(value) is dict else iter(value)
    measured = [_deep(one, deep - 1) for one in itertools.islice(inner, _PARTS)]
    whole = len(parts) * (2 if type(value) is dict else 1)
    return sys.getsizeof(value) + (round(sum(measured) / len(measured) * whole) if measured else 0)
