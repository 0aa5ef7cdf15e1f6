"""Follows which tensors of a step have a batch's samples as their first dimension, from where the batch is drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

from torchvet.probes.base.kit import ByStorage, tensors_within
from torchvet.probes.internals import private

_DRAWN = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_MOST = 65536
"""Elements of an index that are looked at. Chosen, not measured."""


class SampleRows:
    """Tensors that hold a batch's samples in rows. Only samples that are drawn count: the order of those that are read
    in turn may mean something, as that of the days of a year."""

    def __init__(self) -> None:
        self._rows: ByStorage[int] = ByStorage()
        """How many samples the batch has that a storage comes from."""
        self._sources: ByStorage[int] = ByStorage()
        """Tensors, by their length, that rows were picked from: inputs and labels. One alone may be a table of
        positions, some of which are left out."""
        self.size = 0
        """How many samples the last batch has."""

    def drawn(self, iterator: Any, batch: Any) -> None:
        """A loader gave a batch."""
        self._rows.sweep()
        sampler = getattr(iterator, "_index_sampler", None)
        most = getattr(sampler, "batch_size", None)
        tensors = [one for one in tensors_within(batch) if one.dim()]
        sizes = {one.shape[0] for one in tensors if not one.is_nested}
        # A batch that a program puts together itself may have its samples in another dimension.
        is_default = getattr(iterator, "_collate_fn", None) is default_collate
        if not isinstance(most, int) or len(sizes) != 1 or not is_drawn(getattr(sampler, "sampler", None)):
            return
        (size,) = sizes
        if 1 < size <= most and (is_default or size == most):
            self._put(tensors, size)

    def picked(self, args: Any, out: Any) -> None:
        """Rows were taken by an index out of what is kept: samples, where that is in no order."""
        by_rows = len(args) == 3 and args[1] == 0
        where = args[1] if len(args) == 2 else [args[2] if by_rows else None]
        index = where[0] if len(where) == 1 else None
        # Other devices would have to be waited for.
        if not isinstance(index, torch.Tensor) or index.dim() != 1 or index.device.type != "cpu":
            return
        if index.dtype in (torch.int64, torch.int32) and 3 < len(index) <= _MOST and bool((index.diff() < 0).any()):
            self._sources.put(args[0], len(args[0]))
            if sum(known == len(args[0]) for _, known in self._sources.living()) > 1:
                self._put([out], len(index))

    def passed_on(self, args: Any, out: Any) -> None:
        """Note what an operator made of rows by samples; several rows may be of one sample."""
        made = out[0] if isinstance(out, (tuple, list)) and out else out
        if not isinstance(made, torch.Tensor) or not self._rows:
            return
        for given in args:
            for one in given if isinstance(given, (tuple, list)) else (given,):
                size = self._rows.get(one)
                if size is not None and one.dim() and one.shape[0] % size == 0:
                    self._put([made], size)
                    return

    def of(self, tensor: torch.Tensor) -> int | None:
        """How many samples the batch has that a tensor comes from."""
        return self._rows.get(tensor)

    def _put(self, tensors: list[torch.Tensor], size: int) -> None:
        for one in tensors:
            if one.layout is not torch.strided or one.is_nested or private.is_functorch_wrapped(one):
                continue
            if one.dim() and one.shape[0] % size == 0:
                self.size = size
                self._rows.put(one, size)


def is_drawn(sampler: Any) -> bool:
    """Whether a sampler draws, so that the order of a batch's samples means nothing."""
    return isinstance(sampler, _DRAWN) or (isinstance(sampler, DistributedSampler) and sampler.shuffle)
