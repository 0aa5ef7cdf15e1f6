"""Looks for a softmax within a model that normalizes over the samples of a batch, as `softmax(dim=0)` of attention."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, SiteWatcher, StepKind, overloads
from torchvet.probes.internals import private
from torchvet.recording.records.numeric import NormalizedBatch

_NORMALIZING = overloads("_softmax _log_softmax")
_LOSSES = overloads("""
    nll_loss_forward mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
""")
_MOST = 64
"""Calls of a step that are followed."""
_SIZES = 8
"""Sizes of a batch that are kept for a line."""


class _Made(NamedTuple):
    place: Place
    shape: tuple[int, ...]
    dim: int
    trained: bool


class NormalizedBatches(SiteWatcher[Place, NormalizedBatch]):
    """Lines whose softmax goes over as many values as the loss of the same step has samples."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: list[_Made] = []
        self._otherwise: set[Place] = set()
        """Lines that were seen to go over something else."""
        self._loaded = False

    def install(self) -> None:
        """Hear what normalizes, and the losses that say how many samples there are."""
        self.host.hear(_NORMALIZING, self._normalized)
        self.host.hear(_LOSSES, self._lost)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`: in sampled steps."""
        self._loaded = True

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: what it normalized is gone."""
        self._made.clear()

    def _normalized(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if out.dim() < 2 or len(self._made) >= _MOST or private.graph_task() != -1:
            return
        place = self.host.line()
        if place is not None and place not in self._otherwise:
            trained = torch.is_grad_enabled() and args[0].requires_grad
            self._made.append(_Made(place, tuple(out.shape), int(args[1]) % out.dim(), trained))

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        target = args[1]
        if not isinstance(target, torch.Tensor) or not target.dim():
            return
        for made in self._made:
            self._compare(made, tuple(target.shape))
        self._made.clear()

    def _compare(self, made: _Made, target: tuple[int, ...]) -> None:
        samples, known = target[0], self.sites.get(made.place)
        if made.shape[made.dim] != samples or not _only_batch(made, target):
            # One sample tells nothing apart, where the line was seen with more.
            if samples > 1 or known is None:
                self._otherwise.add(made.place)
                self.sites.pop(made.place, None)
            return
        if known is None:
            if not made.trained:
                return
            known = self.sites[made.place] = NormalizedBatch(place=made.place, shape=made.shape, dim=made.dim)
        known.calls += made.trained
        known.loaded = self._loaded
        if samples not in known.sizes and len(known.sizes) < _SIZES:
            known.sizes.append(samples)


def _only_batch(made: _Made, target: tuple[int, ...]) -> bool:
    """Whether the dimension can be nothing but that of the samples: no other one holds them, alone or with the heads of
    an attention, and there is another to normalize over."""
    samples = made.shape[made.dim]
    others = [size for dim, size in enumerate(made.shape) if dim != made.dim]
    # Of `(time, batch)` the first dimension is no sample's.
    beside = [size for size in target[1:] if size > 1 and size in others]
    if samples == 1:
        return not beside
    return not beside and max(others) > 1 and all(size % samples for size in others)
