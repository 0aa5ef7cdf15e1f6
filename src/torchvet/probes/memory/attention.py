"""Looks for attention that is written out: scores of a matrix product, a softmax over their last dimension, and a
product that reads the result. What else reads that result is noted: then the weights themselves are wanted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    SiteWatcher,
    StepKind,
    bare_name,
    frames,
    overloads,
)
from torchvet.probes.internals import private
from torchvet.recording.records.memory import AttentionMatrix

_aten = torch.ops.aten
_PRODUCTS = frozenset(overloads("bmm baddbmm"))
"""What `matmul`, `@` and `einsum` are made of, for batches of matrices."""
_SOFTMAX = _aten._softmax.default
_ELEMENTWISE = frozenset(
    overloads(
        "mul.Tensor div.Tensor add.Tensor sub.Tensor masked_fill.Scalar masked_fill.Tensor where.self "
        "where.ScalarOther where.ScalarSelf tanh _to_copy clone native_dropout nan_to_num"
    )
)
"""Scores stay scores: scaled, masked, biased, capped. So do weights: dropped out, masked, converted."""
_NORMALISING = frozenset(overloads("div.Tensor div_.Tensor"))
_SHORTEST = 128
"""Rows and columns from which on such a matrix is worth another form."""
_FUNCTIONAL = os.path.join("torch", "nn", "functional.py")


class Attention(SiteWatcher[tuple[Place, tuple[int, ...]], AttentionMatrix]):
    """Attention that is written out."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._scores: ByStorage[bool] = ByStorage()
        """Whether scores are exponentials already."""
        self._weights: ByStorage[AttentionMatrix] = ByStorage()

    def install(self) -> None:
        """Hear every operator of sampled steps: any may read the weights."""
        self.host.ledger.listeners.append(self._operator)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: weights that are still there were handed to somebody. A script's own variable is nobody."""
        for _, record in self._weights.living():
            record.kept += record.place.function != "<module>"
        self._weights.clear()
        self._scores.clear()

    def _operator(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # Heard at every operator of sampled steps: nearly all end here.
        if not self._scores and func not in _PRODUCTS:
            return
        if private.graph_task() != -1:  # what the backward pass reads was saved for it
            return
        # `native_dropout` gives its mask beside the result.
        made = out[0] if isinstance(out, tuple) and out else out
        if not isinstance(made, torch.Tensor) or made.layout is not torch.strided or made.is_nested:
            return
        record = self._weights_in(args) if self._weights else None
        if record is not None:
            self._read(func, args, made, record)
        elif func in _PRODUCTS:
            # Both dimensions: a product with few columns is a projection and no matrix of scores.
            if min(made.shape[-2:]) >= _SHORTEST:
                self._scores.put(made, False)
        else:
            self._computed(func, args, made)

    def _computed(self, func: Any, args: tuple[Any, ...], made: torch.Tensor) -> None:
        """What becomes of scores."""
        first: Any = next((a for a in args if self._scores.get(a) is not None), None)
        exponential = self._scores.get(first)
        if exponential is None:
            return
        if func is _SOFTMAX:
            # The dimension may be given from the end (-1).
            if args[1] % first.ndim == first.ndim - 1:
                self._weights.put(made, self._record(made))
        # A softmax by hand: exponentials divided by their sum over the last dimension, which was kept.
        elif exponential and func in _NORMALISING and args[0] is first and args[1].shape[-1:] == (1,):
            self._weights.put(made, self._record(made))
        elif func is _aten.exp.default or func in _ELEMENTWISE:
            self._scores.put(made, exponential or func is _aten.exp.default)

    def _read(self, func: Any, args: tuple[Any, ...], made: torch.Tensor, record: AttentionMatrix) -> None:
        """What becomes of weights. The average that `nn.MultiheadAttention` makes is wanted only if it is read."""
        if func in _PRODUCTS:
            record.applied += 1
        elif func in _ELEMENTWISE or (func is _aten.mean.dim and frames.called_by_torch(_FUNCTIONAL)):
            self._weights.put(made, record)
        # A view shares the storage and is the weights still; any other reader wants them.
        elif self._weights.get(made) is None and not _only_its_shape(func):
            record.elsewhere += 1

    def _record(self, weights: torch.Tensor) -> AttentionMatrix:
        place, shape = self.host.line() or Place("", 0, ""), tuple(weights.shape)
        record = self.sites.setdefault((place, shape), AttentionMatrix(place=place, shape=shape))
        record.calls += 1
        return record

    def _weights_in(self, args: Iterable[Any]) -> AttentionMatrix | None:
        flat = (one for given in args for one in (given if isinstance(given, (list, tuple)) else (given,)))
        return next((record for one in flat if (record := self._weights.get(one)) is not None), None)


def _only_its_shape(func: Any) -> bool:
    """`empty_like`, `new_zeros`: nothing of the numbers is read."""
    name = bare_name(func)
    return bool(name.endswith("_like") or name.startswith("new_"))
