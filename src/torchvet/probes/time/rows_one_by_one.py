"""Times how long a batch takes that is read row by row from tensors in memory, and read at once, after the program has
ended, on tensors that it makes."""

from __future__ import annotations

import time
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from torchvet.probes.base.kit import Host, Place, tap, user_lines
from torchvet.probes.time.loaders.made import MadeLoaders
from torchvet.probes.time.real_time import ENDED, TimeWatcher
from torchvet.recording.records.timing import RowsOneByOne

_MOST = 4
"""Loops that are timed."""
_MOST_BYTES = 64 << 20
"""Of what is made for one. The program may have left little memory."""
_MOST_ROWS = 4096
"""Rows of a batch that are timed: of a larger one its part."""
_ROUNDS, _SECONDS = 7, 0.4
"""Rounds at most, and the seconds of one loop after which no further one begins."""

_Row = tuple[torch.Size, torch.dtype]


class RowsOneByOneTimer(TimeWatcher):
    """Loops over a `TensorDataset` by a loader without workers. Tensors are not kept."""

    only_sampled = frozenset(["batch_asked"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._seen: dict[Place, tuple[int, int, list[_Row]]] = {}
        """By the loop: rows of a batch and of the dataset, and what one row has."""
        self._loaders = MadeLoaders()
        self._unlike: set[Place] = set()
        """Those lines that made a loader of another dataset, too."""
        self._made_for: dict[Place, Place] = {}
        """By the loop: the line that made its loader."""

    def install(self) -> None:
        """Note where loaders are made."""
        self.replace(DataLoader, "__init__", tap(self.host, "where loaders are made", after=self._loader_made))

    def _loader_made(self, _: None, loader: Any, *__: Any, **___: Any) -> None:
        place = self._loaders.note(loader)
        if place is not None and not _tensors(loader.__dict__.get("dataset")):
            self._unlike.add(place)

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """What it reads."""
        # Private. Workers read ahead, while the model runs.
        dataset = getattr(iterator, "_dataset", None)
        if dataset is None or (getattr(iterator, "_num_workers", None) or 0) > 0:
            return
        tensors = _tensors(dataset)
        if not tensors or getattr(iterator, "_collate_fn", None) is not default_collate:
            return
        sampler = getattr(iterator, "_index_sampler", None)
        batch = getattr(sampler, "batch_size", None)
        place = next(iter(user_lines(caller, 1)), None)
        if place is not None and isinstance(batch, int):
            self._seen[place] = min(batch, len(dataset)), len(dataset), [(t.shape[1:], t.dtype) for t in tensors]
            self._made_for.update((place, at) for at in self._loaders.of(iterator))

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways."""
        # After an error nobody waits for times.
        if how not in ENDED:
            return
        for place, (batch, rows, row) in list(self._seen.items())[:_MOST]:
            each = sum(shape.numel() * dtype.itemsize for shape, dtype in row)
            if batch > 1 and 0 < batch * each <= _MOST_BYTES:
                record = _timed(place, batch, min(rows, _MOST_BYTES // each), row)
                record.made = self._made_for.get(place)
                record.alone = record.made not in self._unlike
                self.host.write(record)


def _tensors(dataset: Any) -> list[torch.Tensor]:
    """What a row is read from; nothing where rows are more than plain indexing on the CPU."""
    # Its own class: a derived one may do anything in `__getitem__`.
    while type(dataset) is Subset:
        dataset = dataset.dataset
    tensors: list[torch.Tensor] = list(dataset.tensors) if type(dataset) is TensorDataset else []
    plain = all(type(t) is torch.Tensor and t.device.type == "cpu" and t.layout is torch.strided for t in tensors)
    return tensors if plain else []


def _timed(place: Place, batch: int, rows: int, row: list[_Row]) -> RowsOneByOne:
    dataset = TensorDataset(*(torch.ones((rows, *shape), dtype=dtype, device="cpu") for shape, dtype in row))
    # In a fixed order that jumps: the program's own generator must not be drawn from.
    picked = [(number * 7919) % rows for number in range(min(batch, _MOST_ROWS))]
    each: list[float] = []
    at_once: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(each) < _ROUNDS and (not each or time.perf_counter() < end):
        started = time.perf_counter()
        default_collate([dataset[number] for number in picked])
        between = time.perf_counter()
        dataset[picked]
        at_once.append(time.perf_counter() - between)
        each.append(between - started)
    whole = batch / len(picked)
    slow, quick = whole * min(each), whole * min(at_once)
    return RowsOneByOne(place=place, rows=batch, tensors=len(row), each=slow, at_once=quick)
