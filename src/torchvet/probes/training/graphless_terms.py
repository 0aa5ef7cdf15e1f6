"""Looks for terms of a loss that are computed of what models give, and have no graph: they move no parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, overloads
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import numeric
from torchvet.probes.internals.simulated import simulated
from torchvet.probes.objects.containers import tensors_in
from torchvet.recording.records.numeric import GraphlessTerm

_aten = torch.ops.aten


_MIXING = overloads(
    "_log_softmax.default _softmax.default sigmoid.default tanh.default exp.default log.default div.Tensor mul.Tensor "
    "sub.Tensor pow.Tensor_Scalar abs.default neg.default sqrt.default clamp.default relu.default xlogy.Tensor"
)
_REDUCING = overloads(
    "sum.default mean.default sum.dim_IntList mean.dim mse_loss.default smooth_l1_loss.default huber_loss.default "
    "binary_cross_entropy.default binary_cross_entropy_with_logits.default nll_loss_forward.default"
)
_ADDING = (_aten.add.Tensor, _aten.add_.Tensor, _aten.sub.Tensor)
_WEIGHING = (_aten.mul.Tensor, _aten.div.Tensor, _aten.neg.default)


@dataclass
class _Known:
    """What is of a model's output; with a `place`, a single value that was computed there."""

    place: Place | None = None


class GraphlessTerms(SiteWatcher[Place, GraphlessTerm]):
    """Terms of a loss without a graph."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ByStorage[_Known] = ByStorage()
        self._sums: ByStorage[list[GraphlessTerm]] = ByStorage()
        """Sums with a graph that have such terms: one for each call, not counted yet."""

    def install(self) -> None:
        """Hear what losses are made of."""
        self.host.hear(_MIXING, self._mixed)
        self.host.hear(_REDUCING, self._reduced)
        self.host.hear(_ADDING, self._added)
        self.host.hear(_WEIGHING, self._weighed)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended."""
        self._known.clear()
        self._sums.clear()

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """What a model gives, whether it is trained or not."""
        for tensor in tensors_in(output, 2):
            # Criteria are modules as well: what they give is known already where it is a term.
            # By storage: a view of a term is the term.
            if numeric(tensor) and self._known.get(tensor) is None:
                self._known.put(tensor, _Known())

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """The loss: its terms count now."""
        for loss in tensors_in(tensors, 2):
            # Only sums that go backward are losses.
            for seen in self._sums.get(loss) or ():
                record = self.sites.setdefault(seen.place, GraphlessTerm(place=seen.place, added=seen.added))
                record.calls += 1
                record.zero += seen.zero
                record.value = seen.value
        self._sums.clear()

    def _of_model(self, args: tuple[Any, ...]) -> _Known | None:
        """Whether an operator that runs with gradients on is given something of a model, and nothing with a graph."""
        # With gradients off it is a metric, and meant to have no graph.
        if not torch.is_grad_enabled() or private.graph_task() != -1:
            return None
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        found = [known for known in map(self._known.get, tensors) if known is not None]
        # One operand with a graph gives the result a graph.
        return found[0] if found and not any(t.requires_grad for t in tensors) else None

    def _mixed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._of_model(args)
        if known is not None:
            self._known.put(out, known if known.place is not None and out.numel() == 1 else _Known())

    def _reduced(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._of_model(args)
        if known is None:
            return
        out = out[0] if isinstance(out, tuple) else out
        self._known.put(out, _Known(known.place or self.host.line()) if out.numel() == 1 else _Known())

    def _weighed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        terms = [term for a in args for term in self._sums.get(a) or ()]
        if terms:
            self._sums.put(out, terms)

    def _added(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if private.graph_task() != -1 or out.numel() != 1:
            return
        one, other = args[0], args[1]
        terms = [term for a in (one, other) for term in self._sums.get(a) or ()]
        for term, rest in ((one, other), (other, one)):
            known = self._known.get(term)
            # Added to something with a graph: that is the loss.
            if known is None or known.place is None or term.requires_grad or not _has_graph(rest):
                continue
            terms.append(self._seen(known.place, term))
        if terms:
            self._sums.put(out, terms)

    def _seen(self, place: Place, term: torch.Tensor) -> GraphlessTerm:
        # On a device to read it would make the program wait.
        value = float(term) if not term.is_cuda or simulated() else float("nan")
        return GraphlessTerm(place=place, added=self.host.line(), zero=int(value == 0), value=value)


def _has_graph(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
