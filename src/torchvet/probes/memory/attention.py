"""Looks for attention that is written out: scores of a matrix product, a softmax over their last dimension, and a
product that reads the result. What else reads that result is noted: then the weights themselves are wanted."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.internals import private
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.memory import AttentionMatrix

_aten = torch.ops.aten
_PRODUCTS = frozenset([_aten.bmm.default, _aten.baddbmm.default])
"""What `matmul`, `@` and `einsum` are made of, for batches of matrices."""
_SOFTMAX = _aten._softmax.default
_ELEMENTWISE = frozenset(
    [_aten.mul.Tensor, _aten.div.Tensor, _aten.add.Tensor, _aten.sub.Tensor, _aten.masked_fill.Scalar,
     _aten.masked_fill.Tensor, _aten.where.self, _aten.where.ScalarOther, _aten.where.ScalarSelf, _aten.tanh.default,
     _aten._to_copy.default, _aten.clone.default, _aten.native_dropout.default, _aten.nan_to_num.default]
)  # fmt: skip
"""Scores stay scores: scaled, masked, biased, capped. So do weights: dropped out, masked, converted."""
_NORMALISING = frozenset([_aten.div.Tensor, _aten.div_.Tensor])
_SHORTEST = 128
"""Rows and columns from which on such a matrix is worth another form."""
_FUNCTIONAL = os.path.join("torch", "nn", "functional.py")
_Kept = weakref.ref[torch.UntypedStorage]


class Attention(Watcher):
    """Attention that is written out."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._records: dict[tuple[Place, tuple[int, ...]], AttentionMatrix] = {}
        self._scores: dict[int, tuple[_Kept, bool]] = {}
        """By storage: scores, and whether they are exponentials already."""
        self._weights: dict[int, tuple[_Kept, AttentionMatrix]] = {}

    def install(self) -> None:
        """Be told of every operator of sampled steps: any may read the weights."""
        self.host.ledger.listeners.append(self._operator)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: weights that are still there were handed to somebody. A script's own variable is nobody."""
        for ref, record in self._weights.values():
            record.kept += ref() is not None and record.place.function != "<module>"
        self._weights.clear()
        self._scores.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """Each softmax's."""
        return list(self._records.values())

    def _operator(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not self._scores and func not in _PRODUCTS:
            return
        if private.graph_task() != -1:  # what the backward pass reads was saved for it
            return
        made = out[0] if isinstance(out, tuple) and out else out
        if not isinstance(made, torch.Tensor) or made.layout is not torch.strided or made.is_nested:
            return
        record = self._weights_in(args) if self._weights else None
        if record is not None:
            self._read(func, args, made, record)
        elif func in _PRODUCTS:
            if min(made.shape[-2:]) >= _SHORTEST:
                self._scores[made.untyped_storage()._cdata] = weakref.ref(made.untyped_storage()), False
        else:
            self._computed(func, args, made)

    def _computed(self, func: Any, args: tuple[Any, ...], made: torch.Tensor) -> None:
        """What becomes of scores."""
        first = next((a for a in args if isinstance(a, torch.Tensor) and self._score(a) is not None), None)
        exponential = self._score(first) if first is not None else None
        if first is None or exponential is None:
            return
        key, ref = made.untyped_storage()._cdata, weakref.ref(made.untyped_storage())
        if func is _SOFTMAX:
            if args[1] % first.ndim == first.ndim - 1:
                self._weights[key] = ref, self._record(made)
        elif exponential and func in _NORMALISING and args[0] is first and args[1].shape[-1:] == (1,):
            self._weights[key] = ref, self._record(made)
        elif func is _aten.exp.default or func in _ELEMENTWISE:
            self._scores[key] = ref, exponential or func is _aten.exp.default

    def _read(self, func: Any, args: tuple[Any, ...], made: torch.Tensor, record: AttentionMatrix) -> None:
        """What becomes of weights. The average that `nn.MultiheadAttention` makes is wanted only if it is read."""
        key = made.untyped_storage()._cdata
        if func in _PRODUCTS:
            record.applied += 1
        elif func in _ELEMENTWISE or (func is _aten.mean.dim and frames.called_by_torch(_FUNCTIONAL)):
            self._weights[key] = weakref.ref(made.untyped_storage()), record
        elif key not in self._weights and not _only_its_shape(func):
            record.elsewhere += 1

    def _record(self, weights: torch.Tensor) -> AttentionMatrix:
        place, shape = self.host.line() or Place("", 0, ""), tuple(weights.shape)
        record = self._records.get((place, shape))
        if record is None:
            record = self._records[place, shape] = AttentionMatrix(place=place, shape=shape)
        record.calls += 1
        return record

    def _score(self, tensor: torch.Tensor) -> bool | None:
        storage = _storage(tensor)
        known = self._scores.get(storage._cdata) if storage is not None else None
        return known[1] if known is not None and known[0]() is storage else None

    def _weights_in(self, args: Iterable[Any]) -> AttentionMatrix | None:
        for given in args:
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                storage = _storage(tensor) if isinstance(tensor, torch.Tensor) else None
                known = self._weights.get(storage._cdata) if storage is not None else None
                if known is not None and known[0]() is storage:
                    return known[1]
        return None


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    return None if tensor.layout is not torch.strided or tensor.is_nested else tensor.untyped_storage()


def _only_its_shape(func: Any) -> bool:
    """`empty_like`, `new_zeros`: nothing of the numbers is read."""
    name = func._schema.name.partition("::")[2]
    return bool(name.endswith("_like") or name.startswith("new_"))
