"""Looks for losses that take logarithms of probabilities, and are given probabilities, or scores that are neither."""

from __future__ import annotations

import time
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, StepKind, graphs, overloads
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.probes.training.labels.asked import asking
from torchvet.recording.records.labels import NoLogarithms

_CLASSES = overloads("nll_loss_forward nll_loss2d_forward")
_LATTICES = overloads("_ctc_loss _ctc_loss.Tensor")
_DIVERGENCES = overloads("xlogy.Tensor")
"""What `kl_div` does with its target, unless that is a logarithm too."""
_MOST = 1 << 22
"""Numbers of an input that is looked at."""
_NODES = 6
"""Nodes of the graph that are gone back at most."""
_STEPS = 16
"""Steps in which a loss is looked at: on a GPU each look waits for the device."""
_ROUNDING = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
_FINE = 1e-3
"""How far a sum of probabilities may be from 1."""
_WEIGHTED = ("MulBackward0", "NegBackward0")
"""Logarithms that are weighted first, as by an advantage, are no distribution any more."""
_DENSITIES = ("LogBackward0", "SubBackward0", "SumBackward1")
"""What logarithms of densities end in. These may be above 0, as is `log(p + eps)`. A layer's scores end otherwise."""
_VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "TransposeBackward0", "PermuteBackward0", "AddBackward0")
"""What logarithms go through unchanged, or with a share that is added: a prior, a bias."""


class NoLogarithmsProbe(SiteWatcher[Place, NoLogarithms]):
    """Losses that are given no logarithms."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[Place] = ByStorage()
        """Where probabilities of this step were made."""
        self._allowance = half.Allowance(0.05, 0.005)

    def install(self) -> None:
        """In sampled steps, hear losses that take logarithms, and what makes probabilities."""
        self.host.hear(overloads("_softmax sigmoid"), self._normalized)
        self.host.hear(_CLASSES, self._classified)
        self.host.hear(_LATTICES, self._aligned)
        self.host.hear(_DIVERGENCES, self._diverged)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: what it normalized is gone."""
        self._made.clear()

    def _normalized(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        place = self.host.line() if not half.in_backward() else None
        if place is not None:
            self._made.put(out, place)

    def _classified(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        self._lost("nll_loss", given, 1 if given.dim() > 1 else 0)

    def _aligned(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._lost("ctc_loss", args[0], -1)

    def _diverged(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        asked = asking("kl_div")
        if asked is not None and isinstance(given := asked[1].get("input"), torch.Tensor):
            self._lost("kl_div", given, -1)

    def _lost(self, loss: str, given: torch.Tensor, dim: int) -> None:
        # A loss that is only looked at trains nothing.
        if given.grad_fn is None or half.in_backward() or not self._allowance.left():
            return
        made_by = _origin(given.grad_fn)
        place = self.host.line() if made_by not in _WEIGHTED else None
        record = self.sites.get(place) if place is not None else None
        if place is None or (record is not None and record.steps >= _STEPS):
            return
        began = time.thread_time()
        plain = plain_values(given)
        if plain is not None and 0 < plain.numel() <= _MOST and plain.shape[dim] > 1:
            record = record or self.sites.setdefault(place, NoLogarithms(place=place, loss=loss))
            self._add(record, plain, dim, made_by in _DENSITIES)
            record.made = record.made or self._made.get(given)
        self._allowance.spend(began)

    def _add(self, record: NoLogarithms, given: torch.Tensor, dim: int, density: bool) -> None:
        low, high = (float(end) for end in torch.aminmax(given))
        fine = _ROUNDING.get(given.dtype, _FINE)
        first = record.last != self.host.tick
        record.last = self.host.tick
        record.steps += first
        if record.steps == 1 and first:
            record.low, record.high = low, high
        record.low, record.high = min(record.low, low), max(record.high, high)
        if low >= 0 and high <= 1 + fine:
            sums = given.float().sum(dim)
            record.probabilities += first and bool(((sums - 1).abs() < max(fine, 1e-2)).all())
        # A logarithm of a probability is never above 0.
        elif high > fine and not density:
            record.scores += first


def _origin(node: graphs.Node) -> str:
    """The name of the node that made something, before views of it, and what was added to it."""
    for _ in range(_NODES):
        if graphs.name_of(node) not in _VIEWS:
            break
        parents = [one for one, _ in node.next_functions if one is not None and not hasattr(one, "variable")]
        if not parents:
            break
        node = parents[0]
    return graphs.name_of(node)
