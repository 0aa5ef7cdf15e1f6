"""Looks whether reading a batch changes what the dataset keeps, from the second loop over it on."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from torchvet.probes.base.callers import place_in
from torchvet.probes.base.kit import Host, Place, Record, Watcher, user_lines
from torchvet.probes.objects import naming
from torchvet.recording.records.training import ChangedByReading

_WHAT = "datasets that reading changes"
_LOOPS = 4
"""Loops over a dataset that are looked at, the first left out: what fills a cache is read once."""
_BATCHES = 48
"""Batches of a loop that are looked at."""
_ROWS, _ELEMENTS = 48, 32
"""Rows of an array that are compared, and elements of each."""
_LEAST, _MOST = 16, 4
"""Rows that an array must have, and arrays of one dataset."""
_DATASETS = 8


@dataclass
class _Known:
    id: int
    ref: weakref.ref[Any]
    loops: int = 0
    looked: int = 0
    records: dict[str, ChangedByReading] = field(default_factory=dict)


class ChangedDatasets(Watcher):
    """Datasets whose own data reading changes, in the process that trains. They are held weakly."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: dict[int, _Known] = {}
        self._numbers = itertools.count()
        self._before: tuple[_Known, dict[str, bytes]] | None = None
        """What is read now: rows of its arrays, as they were before."""

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """Before a batch is read."""
        self._before = None
        # Private. Workers have a copy of the dataset, which ends with them.
        dataset = getattr(iterator, "_dataset", None)
        if dataset is None or (getattr(iterator, "_num_workers", None) or 0) > 0:
            return
        known = self._of(dataset)
        if known is None:
            return
        if getattr(iterator, "_num_yielded", 1) == 0:
            known.loops, known.looked = known.loops + 1, 0
        if not 1 < known.loops <= _LOOPS or known.looked >= _BATCHES:
            return
        known.looked += 1
        with self.host.looking(_WHAT):
            self._before = known, dict(_rows(dataset))
            for name in self._before[1].keys() - known.records.keys():
                place = next(iter(user_lines(caller, 1)), None)
                known.records[name] = ChangedByReading(
                    id=known.id,
                    dataset=type(dataset).__name__,
                    attribute=name,
                    place=place,
                    read_at=_item_of(dataset),
                    loop=known.loops,
                    is_tensor=isinstance((naming.namespace(dataset) or {}).get(name), torch.Tensor),
                )

    def _of(self, dataset: Any) -> _Known | None:
        known = self._known.get(id(dataset))
        if known is not None and known.ref() is dataset:
            return known
        if len(self._known) >= _DATASETS:
            return None
        try:
            ref = weakref.ref(dataset)
        except TypeError:
            return None
        known = self._known[id(dataset)] = _Known(next(self._numbers), ref)
        return known

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """After it: are the same rows others?"""
        before, self._before = self._before, None
        dataset = before[0].ref() if before is not None else None
        if before is None or dataset is None:
            return
        with self.host.looking(_WHAT):
            after = dict(_rows(dataset))
            for name, rows in before[1].items():
                record = before[0].records[name]
                record.batches += 1
                record.changed += after.get(name, rows) != rows

    def totals(self, tick: int) -> Iterable[Record]:
        """What reading has changed."""
        return [r for known in self._known.values() for r in known.records.values() if r.changed]


def _rows(dataset: Any) -> Iterator[tuple[str, bytes]]:
    """A few elements of a few rows of the arrays of numbers that a dataset keeps, by attribute."""
    found = 0
    for name, value in list((naming.namespace(dataset) or {}).items()):
        if found < _MOST and isinstance(name, str):
            rows = _of_array(value)
            if rows is not None:
                found += 1
                yield name, rows


def _of_array(value: Any) -> bytes | None:
    numpy = sys.modules.get("numpy")
    if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided:
        known = value.is_floating_point() and value.is_contiguous() and not value.requires_grad
    elif numpy is not None and type(value) is numpy.ndarray:
        known = value.dtype.kind == "f" and value.flags.c_contiguous
    else:
        return None
    # Rows of anything else would have to be copied whole to be looked at.
    if not known or value.ndim < 2 or value.shape[0] < _LEAST:
        return None
    few = value[:: max(1, value.shape[0] // _ROWS)][:_ROWS]
    few = few.reshape(len(few), -1)[:, :_ELEMENTS]
    return bytes((few.to(torch.float64).numpy() if isinstance(few, torch.Tensor) else few).tobytes())


def _item_of(dataset: Any) -> Place | None:
    """Where a dataset's class makes an item."""
    for cls in type(dataset).__mro__:
        made = cls.__dict__.get("__getitem__")
        code: CodeType | None = made.__code__ if type(made) is FunctionType else None
        if code is not None:
            return place_in(code, code.co_firstlineno)
    return None
