"""Looks for losses over all pairs: a column of predictions that meets a row of targets."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.internals import private
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.memory import PairTable

_aten = torch.ops.aten
_MEETING = (_aten.sub.Tensor, _aten.add.Tensor)
_LOSSES = (_aten.mse_loss.default, _aten.smooth_l1_loss.default, _aten.huber_loss.default)
_KEEPING = (
    _aten.pow.Tensor_Scalar, _aten.abs.default, _aten.mul.Tensor, _aten.div.Tensor, _aten.neg.default,
    _aten.where.self, _aten.where.ScalarOther, _aten.where.ScalarSelf, _aten.maximum.default, _aten.minimum.default,
    _aten.clamp.default, _aten.clamp_min.default, _aten.relu.default, _aten.softplus.default, _aten.exp.default,
    _aten.log.default, _aten.log1p.default, _aten.cosh.default, _aten.tanh.default, _aten.sqrt.default,
)  # fmt: skip
"""What losses that are written by hand do element by element."""
_REDUCING = (_aten.mean.default, _aten.sum.default)
_FUNCTIONAL = os.path.join("torch", "nn", "functional.py")
_FEWEST = 17
"""Rows from which on a table is more than 16 times its column."""


class PairTables(Watcher):
    """Losses over all pairs."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[tuple[Place, str], PairTable] = {}
        self._tables: dict[int, tuple[weakref.ref[torch.UntypedStorage], PairTable]] = {}
        """By storage: tables of this step, and what was computed of them element by element."""

    def install(self) -> None:
        """Be told of the operators that such a loss is made of."""
        self.host.hear(_MEETING, self._met)
        self.host.hear(_LOSSES, self._lost)
        self.host.hear(_KEEPING, self._kept)
        self.host.hear(_REDUCING, self._reduced)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: its tables are gone."""
        self._tables.clear()

    def _met(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self._noted(func, args, out)
        if record is not None:
            self._follow(out, record)
        else:
            self._kept(func, args, kwargs, out)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if len(args) > 2 and args[2] == 0:  # no reduction: a table that somebody wants, unless it is averaged later
            return self._met(func, args, kwargs, out)
        record = self._noted(func, args, args[0])
        if record is not None:
            record.reduced += 1

    def _noted(self, func: Any, args: tuple[Any, ...], table: torch.Tensor) -> PairTable | None:
        left, right = args[:2]
        if not isinstance(right, torch.Tensor) or not isinstance(left, torch.Tensor):
            return None
        rows = _rows(left, right) or _rows(right, left)
        if rows and func in _MEETING and _is_meant(left, right):
            return None
        place = self.host.line() if rows else None
        if place is None or private.graph_task() != -1:
            return None
        name = func._schema.name.partition("::")[2]
        record = self._sites.get((place, name))
        if record is None:
            shapes = f"({rows}, 1) and ({rows},)" if _rows(left, right) else f"({rows},) and ({rows}, 1)"
            record = PairTable(place=place, operator=name, shapes=shapes, bytes=0)
            self._sites[place, name] = record
        record.calls += 1
        record.bytes = max(record.bytes, rows * rows * table.element_size())
        return record

    def _follow(self, table: torch.Tensor, record: PairTable) -> None:
        storage = table.untyped_storage()
        self._tables[storage._cdata] = (weakref.ref(storage), record)

    def _of(self, value: Any) -> PairTable | None:
        if not self._tables or not isinstance(value, torch.Tensor):
            return None
        storage = value.untyped_storage()
        known = self._tables.get(storage._cdata)
        return known[1] if known is not None and known[0]() is storage else None

    def _kept(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = next((found for one in args if (found := self._of(one)) is not None), None)
        if record is not None:
            self._follow(out, record)

    def _reduced(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self._of(args[0])
        if record is not None:
            record.reduced += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        return list(self._sites.values())


def _rows(column: torch.Tensor, row: torch.Tensor) -> int:
    """How many rows a column has that meets a row of as many: 0 where they do not stretch each other, where the column
    carries no gradient or the row does (scores held against each other), or where somebody gave the column its second
    dimension for this very purpose."""
    if not column.is_floating_point() or column.layout is not torch.strided or row.layout is not torch.strided:
        return 0
    own, other = _unstretched(column), _unstretched(row)
    if len(own) != 2 or own[1] != 1 or own[0] < _FEWEST or other[-1:] != own[:1]:
        return 0
    one_dimension = len(other) == 1 or (len(other) == 2 and other[0] == 1 and _base(row).ndim == 1)
    targets = one_dimension and not _from_a_model(row)
    return own[0] if targets and _base(column).ndim >= 2 and _from_a_model(column) else 0


def _is_meant(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether somebody wrote a subtraction of every pair: gave the row its first dimension, the column its second, or
    stretched one of them. `l1_loss` subtracts as well, and has stretched both itself before: what it was given is seen
    no more, and neither is who stretched it."""
    if left.shape == right.shape:
        return not frames.called_by_torch(_FUNCTIONAL)
    column, row = (left, right) if left.shape[-1:] == (1,) else (right, left)
    unsqueezed = column.grad_fn is not None and column.grad_fn.name().startswith("Unsqueeze")
    return row.ndim > 1 or unsqueezed


def _unstretched(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape before `expand`; a leading 1 may be there or not."""
    return tuple(1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _from_a_model(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad or _base(tensor).requires_grad
