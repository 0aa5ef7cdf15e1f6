"""Looks for log-probabilities over another dimension than the one that the loss takes for the classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher
from torchvet.probes.internals import private
from torchvet.recording.records.numeric import SoftmaxAxis

_aten = torch.ops.aten
_NORMALIZING = (_aten._softmax.default, _aten._log_softmax.default)
_LOSSES = (_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default)


class _Made(NamedTuple):
    """What was normalized: its shape, over which dimension, that one's distance in memory, and where."""

    shape: tuple[int, ...]
    dim: int
    stride: int
    place: Place | None


class SoftmaxAxes(SiteWatcher[Place, SoftmaxAxis]):
    """Log-probabilities over the wrong dimension."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[_Made] = ByStorage()

    def install(self) -> None:
        """Hear what normalizes, logarithms of it, and the losses that take log-probabilities."""
        self.host.hear(_NORMALIZING, self._normalized)
        self.host.hear([_aten.log.default], self._logarithm)
        self.host.hear(_LOSSES, self._lost)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: what it normalized is gone."""
        self._made.clear()

    def _normalized(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if private.graph_task() == -1 and out.dim() > 0:
            dim = int(args[1]) % out.dim()
            self._made.put(out, _Made(tuple(out.shape), dim, out.stride(dim), self.host.line()))

    def _logarithm(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        made = self._made.get(args[0])
        # The dimension is told by its stride below: another layout would lose it.
        if made is not None and out.stride() == args[0].stride():
            self._made.put(out, made)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        made = self._made.get(given)
        if made is None or made.place is None or not given.requires_grad:
            return
        # `nll_loss` has the classes in dimension 1, or alone for one sample.
        classes = 1 if given.dim() > 1 else 0
        # Views change the number of a dimension, and not its distance in memory; of one element there is none.
        if given.shape[classes] < 2 or made.shape[made.dim] < 2 or given.stride(classes) == made.stride:
            return
        new = SoftmaxAxis(place=made.place, loss=self.host.line(), shape=made.shape, dim=made.dim, classes=classes)
        self.sites.setdefault(made.place, new).calls += 1
