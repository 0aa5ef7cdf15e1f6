"""Watches how far ahead the targets of language models are, in sampled steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, Record, SiteWatcher, StepKind, overloads
from torchvet.probes.internals import private
from torchvet.probes.internals.simulated import numbers, plain_values, simulated
from torchvet.probes.training.labels.ahead import Ahead, Loss, measured
from torchvet.recording.records.labels import TargetsAhead

_LOSSES = overloads("nll_loss_forward nll_loss2d_forward")
_LOSS_GRADIENTS = overloads("nll_loss_backward nll_loss2d_backward")
_LOOKUPS = overloads("embedding")
_LOOKUP_GRADIENTS = overloads("embedding_dense_backward")
_STEPS = 16
"""Steps that are looked at: on a GPU each look waits for the device."""
_MOST = 1 << 18
"""Targets, or tokens, of a batch that is looked at."""
_BATCH = 2
"""Dimensions of ids: samples and time, or time and samples."""
_CALLS = 16
"""Losses of one step, or lookups in tables that are not trained."""


class TargetsAheadProbe(SiteWatcher[tuple[Place, int, bool], TargetsAhead]):
    """How far ahead of their row of logits the targets of cross entropies are."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._places: ByStorage[Place] = ByStorage()
        """By logarithms of probabilities: the line of their loss."""
        self._losses: list[Loss] = []
        """Those that the backward pass under way has begun with."""
        self._pass = -1
        self._frozen: list[torch.Tensor] = []
        """Tokens that this step looked up in tables without a gradient."""
        self._left = _STEPS

    def install(self) -> None:
        """In sampled steps, hear losses and embeddings, and their gradients being made."""
        self.host.hear(_LOSSES, self._lost)
        self.host.hear(_LOOKUPS, self._looked_up)
        self.host.hear(_LOSS_GRADIENTS, self._differentiated_loss)
        self.host.hear(_LOOKUP_GRADIENTS, self._differentiated_lookup)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if self._losses or self._places:
            self._close()
            self._left -= 1
        self._places.clear()
        self._frozen.clear()

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._left > 0 and args[0].requires_grad and len(self._places) < _CALLS:
            place = self.host.line()
            if place is not None:
                self._places.put(args[0], place)

    def _looked_up(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # What a teacher reads says nothing of the model that learns.
        wanted = self._left > 0 and torch.is_grad_enabled() and not args[0].requires_grad
        ids = _on_host(args[1]) if wanted and len(self._frozen) < _CALLS and args[1].dim() == _BATCH else None
        if ids is not None:
            self._frozen.append(ids)

    def _differentiated_loss(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # The operator's signature: gradient, self, target, weight, reduction, ignore_index, total weight.
        place = self._places.get(args[1]) if self._places else None
        if place is None:
            return
        gradient, target, weight = (None if args[at] is None else _on_host(args[at]) for at in (0, 2, 3))
        if target is None or gradient is None:
            return
        task = private.graph_task()
        if task != self._pass:
            self._close()
            self._pass = task
        # Rows whose loss counts for nothing, by a mask or a weight of their class, ask for nothing.
        used = (target != args[5]) & (gradient != 0)
        if weight is not None:
            used &= weight[target.clamp(0, len(weight) - 1)] != 0
        if len(self._losses) < _CALLS:
            self._losses.append(Loss(place, target, used))

    def _differentiated_lookup(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if not self._losses or private.graph_task() != self._pass or args[1].dim() != _BATCH:
            return
        ids = _on_host(args[1])
        # Reduced where it lies: a gradient is much larger than its ids.
        seen = _on_host(_plain(args[0]).any(-1)) if ids is not None else None
        if ids is None or seen is None or ids.shape != seen.shape:
            return
        for loss in self._losses:
            found = measured(loss, ids, seen)
            # What is seen by one way is seen.
            if found is not None and (loss.found is None or found.ahead < loss.found.ahead):
                loss.found = found

    def _close(self) -> None:
        """A backward pass is over: note what its losses have shown."""
        losses, self._losses, self._pass = self._losses, [], -1
        for loss in losses:
            for ids in self._frozen if loss.found is None else ():
                loss.found = loss.found or measured(loss, ids, None)
            if loss.found is not None:
                self._add(loss.place, loss.found)

    def _add(self, place: Place, found: Ahead) -> None:
        key = place, found.ahead, found.by_gradient
        record = self.sites.setdefault(key, TargetsAhead(place=place, ahead=found.ahead, by_gradient=found.by_gradient))
        record.targets += found.targets
        record.agreed += found.agreed
        if record.last != self.host.tick:
            record.last = self.host.tick
            record.steps += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Lines, by how far ahead their targets are."""
        # Those of the last step, too.
        self._close()
        return super().totals(tick)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return numbers(tensor) if simulated() else tensor


def _on_host(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a plain tensor of some size, where they may be read now."""
    plain = plain_values(tensor)
    if plain is None or not 0 < plain.numel() <= _MOST:
        return None
    # A copy in any case: what the program made may go when the program lets go of it.
    return plain.to("cpu", copy=True)
