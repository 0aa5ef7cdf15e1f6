"""Looks for softmax over a dimension of size 1: it gives 1 whatever it is given, and what led there never learns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, SiteWatcher
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.numerics import half
from torchvet.recording.records.training import ConstantSoftmax

_aten = torch.ops.aten
_MOST_NODES = 8192
_LOOKS = 8
"""Calls of one line whose graph is followed."""


class ConstantSoftmaxes(SiteWatcher[Place, ConstantSoftmax]):
    """Softmax over one element."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._allowance = half.Allowance(0.05, 0.002)

    def install(self) -> None:
        """In sampled steps, hear softmax."""
        self.host.hear([_aten._softmax.default, _aten._log_softmax.default], self._normalised)

    def _normalised(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given, dim = args[0], args[1]
        # Without a graph nothing was to learn by it.
        if given.dim() == 0 or given.shape[dim] != 1 or given.grad_fn is None or half.in_backward():
            return
        place = self.host.line()
        if place is None or not self._allowance.left():
            return
        record = self.sites.setdefault(place, ConstantSoftmax(place=place, shape=tuple(given.shape), dim=int(dim)))
        record.calls += 1
        if record.calls <= _LOOKS:
            names = self.host.known.parameter_names()
            # Parameters that can learn by this result alone get no gradient.
            above = {id(getattr(node, "variable", None)) for node in all_below([given.grad_fn], _MOST_NODES)}
            record.names = sorted({names[key] for key in above & names.keys()} | set(record.names))

    def totals(self, tick: int) -> Iterable[Record]:
        """What was seen, by line."""
        return list(self.sites.values())
