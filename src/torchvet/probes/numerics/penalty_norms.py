"""Looks for gradient penalties whose norm is not one number for each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.kit import ByStorage, Host, Place, SiteWatcher, tap
from torchvet.recording.records.numeric import PenaltyNorm

_aten = torch.ops.aten
_NORMS = (_aten.linalg_vector_norm.default, _aten.norm.ScalarOpt_dim, _aten.norm.Scalar)
_SQUARES = (_aten.pow.Tensor_Scalar, _aten.mul.Tensor)
_KEEPING = (_aten.sqrt.default, _aten.add.Tensor)
_SHIFTS = (_aten.sub.Tensor, _aten.rsub.Scalar)
_WHAT = "norms of gradient penalties"


@dataclass
class _Known:
    """The gradient of `samples` scores by what they were given, its squares, or (with a `place`) its norms."""

    shape: tuple[int, ...]
    samples: int
    place: Place | None = None
    dims: tuple[int, ...] = ()
    norms: int = 0


class PenaltyNorms(SiteWatcher[Place, PenaltyNorm]):
    """Norms of gradient penalties."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ByStorage[_Known] = ByStorage()

    def install(self) -> None:
        """Hear of gradients that are taken with a graph of their own, and of what becomes of them in sampled steps."""
        self.replace(torch.autograd, "grad", tap(self.host, None, after=self._taken))
        self.host.hear(_NORMS, self._norm)
        self.host.hear([_aten.sum.dim_IntList], self._norm)
        self.host.hear(_SQUARES, self._squared)
        self.host.hear(_KEEPING, self._kept)
        self.host.hear(_SHIFTS, self._shifted)

    def _taken(
        self,
        result: Any,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        # A penalty's gradient must be differentiable itself; other calls of `grad` are none.
        if create_graph and self.host.sampling:
            with self.host.looking(_WHAT):
                self._note(result[0], _single(outputs), _single(inputs))

    def _note(self, gradient: Any, scores: Any, given: Any) -> None:
        self._known.sweep()
        if not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in (gradient, scores, given)):
            return
        # A score for each sample: a field that has one at each point takes its norms at points.
        if given.dim() > 1 and given.shape[0] > 1 and scores.numel() == given.shape[0]:
            self._known.put(gradient, _Known(tuple(given.shape), given.shape[0]))

    def _squared(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known.get(args[0])
        # A norm written by hand: squares, a sum, a root.
        if known is not None and known.place is None and (args[1] == 2 if func is _SQUARES[0] else args[1] is args[0]):
            self._known.put(out, known)

    def _norm(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known.get(args[0])
        if known is None or known.place is not None:
            return
        # `sum(dim)` has it second, norms third; torch leaves it out for all dimensions.
        given = args[1] if func is _aten.sum.dim_IntList else args[2] if len(args) > 2 else kwargs.get("dim")
        count = args[0].dim()
        dims = tuple(d % count for d in given) if given else tuple(range(count))
        norms = out.numel()
        self._known.put(out, _Known(tuple(args[0].shape), known.samples, self.host.line(), dims, norms))

    def _kept(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known.get(args[0])
        # `sqrt`, or `+ eps`: still the norms.
        if known is not None and known.place is not None and (len(args) < 2 or isinstance(args[1], (int, float))):
            self._known.put(out, known)

    def _shifted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._known.get(args[0])
        target = args[1] if len(args) > 1 else None
        # The target of a penalty is a number (`norm - 1`).
        if known is None or known.place is None or not isinstance(target, (int, float)) or not math.isfinite(target):
            return
        # A view with another first dimension, and as many norms as samples, may be either.
        if known.norms == known.samples or not target:
            return
        new = PenaltyNorm(
            place=known.place,
            shape=known.shape,
            dims=known.dims,
            samples=known.samples,
            norms=known.norms,
            target=float(target),
        )
        self.sites.setdefault(known.place, new).calls += 1

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is known any more."""
        self._known.clear()


def _single(value: Any) -> Any:
    """The one tensor among them, or None."""
    if isinstance(value, (list, tuple)):
        return value[0] if len(value) == 1 else None
    return value
