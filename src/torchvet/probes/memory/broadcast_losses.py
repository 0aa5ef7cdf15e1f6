"""Looks for losses and measures over all pairs: a column of predictions that meets a row of targets."""

from __future__ import annotations

import os
from typing import Any

import torch

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    SiteWatcher,
    bare_name,
    frames,
    graphs,
    overloads,
)
from torchvet.probes.internals import private
from torchvet.probes.internals.simulated import plain_values
from torchvet.recording.records.memory import PairTable

_ADDING = overloads("add.Tensor")
_MEETING = (*overloads("sub.Tensor"), *_ADDING)
_LOSSES = overloads("mse_loss smooth_l1_loss huber_loss")
_KEEPING = overloads(
    "pow.Tensor_Scalar abs mul.Tensor div.Tensor neg where.self where.ScalarOther where.ScalarSelf maximum minimum "
    "clamp clamp_min relu softplus exp log log1p cosh tanh sqrt _to_copy"
)
"""What losses that are written by hand do element by element."""
_REDUCING = overloads("mean sum")
_COMPARING = overloads("eq.Tensor ne.Tensor")
"""What measures do with predictions and targets."""
_LINES = 64
"""Lines that are followed at most."""
_FUNCTIONAL = os.path.join("torch", "nn", "functional.py")
_FEWEST = 4
"""Rows from which on it is no accident of the shapes: the loss is wrong however small the table is. Chosen, not
measured."""


class PairTables(SiteWatcher[tuple[Place, str], PairTable]):
    """Losses and measures over all pairs."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._tables: ByStorage[PairTable] = ByStorage()
        """Tables of this step, and what was computed of them element by element."""

    def install(self) -> None:
        """Hear the operators that such a loss is made of."""
        self.host.hear(_MEETING, self._met)
        self.host.hear(_LOSSES, self._lost)
        self.host.hear(_COMPARING, self._compared)
        self.host.hear(_KEEPING, self._kept)
        self.host.hear(_REDUCING, self._reduced)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: its tables are gone."""
        self._tables.clear()

    def _met(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self._noted(func, args, out)
        if record is not None:
            self._tables.put(out, record)
        else:
            self._kept(func, args, kwargs, out)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # `reduction` is 0 for none, 1 for mean, 2 for sum.
        if len(args) > 2 and args[2] == 0:  # no reduction: a table that somebody wants, unless it is averaged later
            return self._met(func, args, kwargs, out)
        record = self._noted(func, args, args[0])
        if record is not None:
            record.reduced += 1

    def _noted(self, func: Any, args: tuple[Any, ...], table: torch.Tensor) -> PairTable | None:
        left, right = args[:2]
        if not isinstance(right, torch.Tensor) or not isinstance(left, torch.Tensor) or private.graph_task() != -1:
            return None  # a backward pass repeats the shapes of its forward: it is no second fault
        # Either operand may be the column.
        # Without gradients nobody's `unsqueeze` is seen, and nothing is learned.
        if func in _MEETING and not torch.is_grad_enabled() and left.shape != right.shape:
            return self._measured(func, left, right, table)
        rows = _rows(left, right) or _rows(right, left)
        meant = rows and func in _MEETING and _is_meant(left, right)
        if meant or (left.dim() and _unstretched(left) == _unstretched(right)):
            self._fits(func)
            return None
        place = self.host.line() if rows else None
        if place is None:
            return None
        return self._add(place, bare_name(func), rows, bool(_rows(left, right)), table)

    def _fits(self, func: Any) -> None:
        """A call of this line is as it should be. What is added is no loss: nothing is suspected of it."""
        place = self.host.line() if func not in _ADDING else None
        key = (place, bare_name(func)) if place is not None else None
        if key is not None and (key in self.sites or len(self.sites) < _LINES):
            self.sites.setdefault(key, PairTable(*key, shapes="", bytes=0)).fits += 1

    def _add(
        self, place: Place, name: str, rows: int, column_first: bool, table: torch.Tensor, measures: bool = False
    ) -> PairTable:
        shapes = f"({rows}, 1) and ({rows},)" if column_first else f"({rows},) and ({rows}, 1)"
        new = PairTable(place=place, operator=name, shapes=shapes, bytes=0)
        record = self.sites.setdefault((place, name), new)
        record.shapes = shapes
        record.rows = rows if measures else 0
        record.calls += 1
        record.bytes = max(record.bytes, rows * rows * table.element_size())
        return record

    def _compared(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self._measured(func, args[0], args[1], out)
        if record is not None:
            self._tables.put(out, record)

    def _measured(self, func: Any, left: Any, right: Any, table: torch.Tensor) -> PairTable | None:
        if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < _FEWEST:
            return None
        column, row = (left, right) if left.ndim == 2 else (right, left)
        if not _meet_unasked(column, row) or _is_grid(row):
            self._fits(func)
            return None
        place = self.host.line()
        if place is None:
            return None
        return self._add(place, bare_name(func), len(row), column is left, table, measures=True)

    def _kept(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._tables:
            record = next((found for one in args if (found := self._tables.get(one)) is not None), None)
            if record is not None:
                self._tables.put(out, record)

    def _reduced(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self._tables.get(args[0]) if self._tables else None
        if record is not None:
            record.reduced += 1


def _rows(column: torch.Tensor, row: torch.Tensor) -> int:
    """How many rows a column has that meets a row of as many: 0 where they do not stretch each other, where both carry
    gradients (scores held against each other) or none does, where the row is a parameter (centers), or where somebody
    gave the column its second dimension for this very purpose."""
    if not column.is_floating_point() or column.layout is not torch.strided or row.layout is not torch.strided:
        return 0
    own, other = _unstretched(column), _unstretched(row)
    if len(own) != 2 or own[1] != 1 or own[0] < _FEWEST or other[-1:] != own[:1]:
        return 0
    if not _is_row(row, other):
        return 0
    # Either is the prediction.
    targets = _from_a_model(row) != _from_a_model(column) and not _is_parameter(row)
    return own[0] if targets and _base(column).ndim >= 2 else 0


def _meet_unasked(column: torch.Tensor, row: torch.Tensor) -> bool:
    """Whether two come from elsewhere, as a column and as a row: who compares all pairs of labels has given them their
    second dimension for it, or compares them with themselves."""
    if column.ndim != 2 or column.shape[1] != 1 or row.ndim != 1 or column.is_inference() or row.is_inference():
        return False
    base = _base(column)
    # A view of a column that is one again was given its second dimension.
    asked = base.ndim < 2 or (base is not column and base.shape == column.shape)
    return not asked and base is not _base(row)


def _is_meant(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether somebody wrote a subtraction of every pair: gave the row its first dimension, the column its second, or
    stretched one of them. `l1_loss` subtracts as well, and has stretched both itself before: what it was given is seen
    no more, and neither is who stretched it."""
    if left.shape == right.shape:
        return not frames.called_by_torch(_FUNCTIONAL)
    column, row = (left, right) if left.shape[-1:] == (1,) else (right, left)
    unsqueezed = column.grad_fn is not None and graphs.name_of(column.grad_fn).startswith("Unsqueeze")
    return row.ndim > 1 or unsqueezed


def _is_row(row: torch.Tensor, other: tuple[int, ...]) -> bool:
    """Whether something of the shape `other` has one dimension, or had it before it was stretched."""
    base = _base(row)
    was_row = base.ndim == 1 or (base.ndim == 2 and base.shape[1] == 1)  # a column that was squeezed
    return len(other) == 1 or (len(other) == 2 and other[0] == 1 and was_row)


def _is_grid(row: torch.Tensor) -> bool:
    """Whether numbers only rise, as those of classes, bins and thresholds: each is compared on purpose."""
    plain = plain_values(row)
    return plain is None or bool((plain[1:] > plain[:-1]).all())


def _is_parameter(tensor: torch.Tensor) -> bool:
    base = _base(tensor)
    return base.requires_grad and base.is_leaf


def _unstretched(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape before `expand`; a leading 1 may be there or not."""
    return tuple(1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _from_a_model(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad or _base(tensor).requires_grad
