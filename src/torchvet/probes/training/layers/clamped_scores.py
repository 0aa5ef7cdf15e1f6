"""Looks for scores of classes that a ReLU ends: those of a class that are always 0 get no gradient."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    graphs,
    overloads,
)
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.recording.records.layers import ClampedScores

_MOST = 1 << 22
"""Numbers of the scores that are looked at."""
_LAST = 8
"""Sampled steps by which classes are judged. One may live at first, and die."""
_FEWEST = 4
"""Samples of a class from which on it is judged. Chosen, not measured."""


class ClampedScoresProbe(SiteWatcher[Place, ClampedScores]):
    """Scores that a ReLU made, and that go into a cross entropy."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[tuple[Place, str]] = ByStorage()
        """What ReLUs gave in this step: where, and in which module."""
        self._scores: ByStorage[tuple[Place, str, torch.Tensor]] = ByStorage()
        """Logarithms of what such scores make: with where these are above 0, a row a sample."""
        self._last: dict[Place, deque[tuple[torch.Tensor, torch.Tensor]]] = {}
        """By loss, of the last sampled steps: targets of each class, and those whose own score was above 0."""
        self._allowance = half.Allowance(0.05, 0.005)

    def install(self) -> None:
        """In sampled steps, hear ReLUs, and what a cross entropy is made of."""
        self.host.hear(overloads("relu relu_"), self._clamped)
        self.host.hear(overloads("_log_softmax"), self._scored)
        self.host.hear(overloads("nll_loss_forward nll_loss2d_forward"), self._lost)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        self._made.clear()
        self._scores.clear()

    def _clamped(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        place = self.host.line() if args[0].requires_grad and not half.in_backward() else None
        if place is not None:
            self._made.put(out, (place, self.host.ledger.module() or ""))

    def _scored(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given, dim = args[0], args[1]
        made = self._made.get(given) if self._made and given.requires_grad else None
        # What was added to it in place has its storage, and is no ReLU's result any more.
        if made is None or half.in_backward() or not graphs.name_of(given.grad_fn).startswith("Relu"):
            return
        began = time.thread_time()
        plain = plain_values(given) if self._allowance.left() and 0 < given.numel() <= _MOST else None
        if plain is not None and plain.dim() > 1 and plain.shape[dim] > 1:
            self._scores.put(out, (*made, (plain > 0).movedim(dim, -1).flatten(0, -2).cpu()))
        self._allowance.spend(began)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        found = self._scores.get(args[0]) if self._scores else None
        loss = self.host.line() if found is not None else None
        targets = plain_values(args[1]) if loss is not None else None
        if found is None or loss is None or targets is None:
            return
        began = time.thread_time()
        place, module, above = found
        record = self.sites.setdefault(loss, ClampedScores(place=place, loss=loss, module=module))
        record.steps += record.last != self.host.tick
        record.last = self.host.tick
        record.scores += above.numel()
        record.zeros += above.numel() - int(above.sum())
        record.classes = above.shape[1]
        record.dead = self._dead(loss, above, targets.flatten().cpu())
        self._allowance.spend(began)

    def _dead(self, loss: Place, above: torch.Tensor, targets: torch.Tensor) -> int:
        """How many classes there were samples of lately, none of which had a score of its own above 0."""
        classes = above.shape[1]
        rows = ((targets >= 0) & (targets < classes)).nonzero().flatten()
        own = targets[rows]
        there = torch.bincount(own, minlength=classes)
        living = torch.bincount(own[above[rows, own]], minlength=classes)
        last = self._last.setdefault(loss, deque(maxlen=_LAST))
        if last and last[0][0].shape != there.shape:
            last.clear()
        last.append((there, living))
        seen, lived = (torch.stack(counts).sum(0) for counts in zip(*last, strict=True))
        return int(((seen >= _FEWEST) & (lived == 0)).sum())

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose scores a ReLU ends."""
        return [*self.sites.values()]
