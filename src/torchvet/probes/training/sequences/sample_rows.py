"""Follows which dimension of a step's tensors is that of a batch's samples, from where the batch is drawn."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

from torchvet.probes.base.kit import ByStorage, tensors_within
from torchvet.probes.internals import private
from torchvet.probes.training.sequences.axes import Axis, axis_behind, samples_axis

_DRAWN = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_MOST = 65536
"""Elements of an index that are looked at. Chosen, not measured."""
_PARTS = 16
"""Tensors of a batch, and tensors that rows are picked from, whose ways are followed. Chosen, not measured."""


class Rows(NamedTuple):
    """Where a storage has the samples of a batch."""

    size: int
    """How many samples the batch has."""
    step: int
    """How far it is from one sample to the next."""
    exact: bool
    """Whether nothing on the way leaves open which dimension is that of the samples."""
    pool: int
    """How many samples those were picked from; 0 for what a loader drew."""


class SampleRows:
    """Tensors that hold a batch's samples in a dimension. Only samples that are drawn count: the order of those that
    are read in turn may mean something, as that of the days of a year."""

    def __init__(self) -> None:
        self._rows: ByStorage[Rows] = ByStorage()
        self._sources: ByStorage[int] = ByStorage()
        """Tensors that rows were picked from, by number: inputs and labels. One alone may be a table of positions, some
        of which are left out."""
        self._parts: dict[int, tuple[int, ...]] = {}
        """The shapes of a batch's tensors, and of those that rows were picked from, by number."""
        self._ways: ByStorage[int] = ByStorage()
        """Which of these a tensor comes of: a bit for each."""
        self.size = 0
        """How many samples the last batch has."""

    def drawn(self, iterator: Any, batch: Any) -> None:
        """A loader gave a batch."""
        self._rows.sweep()
        self._ways.clear()
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
            self._begin(tensors, size, is_default)

    def _begin(self, tensors: list[torch.Tensor], size: int, exact: bool) -> None:
        self._parts = {key: shape for key, shape in self._parts.items() if key >= _PARTS}
        for number, one in enumerate(tensors):
            self._put(one, size, Axis(0), exact, 0)
            if number < _PARTS and _is_plain(one):
                self._parts[number] = tuple(one.shape)
                self._ways.put(one, 1 << number)

    def picked(self, args: Any, out: Any) -> None:
        """Rows were taken by an index out of what is kept: samples, where that is in no order."""
        by_rows = len(args) == 3 and args[1] == 0
        where = args[1] if len(args) == 2 else [args[2] if by_rows else None]
        index = where[0] if len(where) == 1 else None
        # Other devices would have to be waited for.
        if not isinstance(index, torch.Tensor) or index.dim() != 1 or index.device.type != "cpu":
            return
        if index.dtype in (torch.int64, torch.int32) and 3 < len(index) <= _MOST and bool((index.diff() < 0).any()):
            number, pool = self._number(args[0]), len(args[0])
            if number is not None and _is_plain(out):
                self._ways.put(out, 1 << number)
            if len(self._of_pool(pool)) > 1:
                self._put(out, len(index), Axis(0), True, pool)

    def _number(self, source: torch.Tensor) -> int | None:
        number = self._sources.get(source)
        if number is None:
            self._sources.sweep()
            used = {one for _, one in self._sources.living()}
            number = next((one for one in range(_PARTS, 2 * _PARTS) if one not in used), None)
            if number is not None:
                self._sources.put(source, number)
                self._parts[number] = tuple(source.shape)
        return number

    def _of_pool(self, pool: int) -> list[int]:
        """The numbers of a batch's tensors, or of those of this many rows that rows were picked from."""
        if not pool:
            return [number for number in self._parts if number < _PARTS]
        return [number for _, number in self._sources.living() if self._parts[number][0] == pool]

    def passed_on(self, name: str, args: Any, out: Any) -> None:
        """Note what an operator made of rows by samples; several rows may be of one sample."""
        made = out[0] if isinstance(out, (tuple, list)) and out else out
        if not isinstance(made, torch.Tensor) or not self._ways or not _is_plain(made):
            return
        ways, found = 0, False
        for one in tensors_within(args):
            ways |= self._ways.get(one) or 0
            found = found or self._followed(name, args, one, made)
        if ways:
            self._ways.put(made, ways | (self._ways.get(made) or 0))

    def _followed(self, name: str, args: Any, one: torch.Tensor, made: torch.Tensor) -> bool:
        """Whether this holds samples; what was made of them is noted."""
        at = self._at(one)
        if at is None:
            return False
        rows, axis = at
        behind = axis_behind(name, args, one, made, axis)
        if behind is not None:
            same = made.shape[behind.dim] == one.shape[axis.dim]
            self._put(made, rows.size, behind, rows.exact and same, rows.pool)
        return True

    def _at(self, tensor: torch.Tensor) -> tuple[Rows, Axis] | None:
        rows = self._rows.get(tensor)
        axis = samples_axis(tensor, rows.size, rows.step) if rows is not None else None
        return (rows, axis) if rows is not None and axis is not None else None

    def of(self, tensor: torch.Tensor) -> tuple[Rows, int] | None:
        """The batch whose samples a tensor holds, and in which dimension."""
        at = self._at(tensor)
        return (at[0], at[1].dim) if at is not None else None

    def are_answered(self, tensor: torch.Tensor, pool: int) -> bool:
        """Whether this comes of all tensors of the batch that have one number for each sample, the labels among them:
        samples are then given to be learned from by others."""
        single = [one for one in self._of_pool(pool) if math.prod(self._parts[one][1:]) == 1]
        return bool(single) and all(self._comes_of(tensor, one) for one in single)

    def has_labels(self, tensor: torch.Tensor, pool: int, length: int) -> bool:
        """Whether rows without positions were picked with this, and are no part of it: it has samples in its rows, not
        the members of sets."""
        return any(
            length not in self._parts[one][1:] and not self._comes_of(tensor, one) for one in self._of_pool(pool)
        )

    def _comes_of(self, tensor: torch.Tensor, number: int) -> bool:
        return bool((self._ways.get(tensor) or 0) >> number & 1)

    def _put(self, one: torch.Tensor, size: int, axis: Axis, exact: bool, pool: int) -> None:
        if not _is_plain(one) or axis.dim >= one.dim() or one.shape[axis.dim] % size:
            return
        stride = one.stride(axis.dim)
        step = stride if axis.inner else stride * (one.shape[axis.dim] // size)
        # What is expanded has the same in all rows.
        if step:
            self.size = size
            self._rows.put(one, Rows(size, step, exact, pool))


def _is_plain(one: torch.Tensor) -> bool:
    return one.layout is torch.strided and not one.is_nested and not private.is_functorch_wrapped(one)


def is_drawn(sampler: Any) -> bool:
    """Whether a sampler draws, so that the order of a batch's samples means nothing."""
    return isinstance(sampler, _DRAWN) or (isinstance(sampler, DistributedSampler) and sampler.shuffle)
