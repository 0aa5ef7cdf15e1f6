"""Looks for losses that normalise what has been normalised: a softmax or sigmoid whose result goes into another."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher
from torchvet.probes.internals import private
from torchvet.recording.records.training import NormalisedTwice

_aten = torch.ops.aten
_FIRST = (_aten._softmax.default, _aten.sigmoid.default)
_AGAIN = {_aten._log_softmax.default: "softmax", _aten.binary_cross_entropy_with_logits.default: "sigmoid"}


class NormalisedLosses(SiteWatcher[Place, NormalisedTwice]):
    """Losses that normalise again."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[tuple[str, Place | None]] = ByStorage()
        """What was normalised in this step, how and where."""

    def install(self) -> None:
        """Hear what normalises, and the losses that do."""
        self.host.hear(_FIRST, self._normalised)
        self.host.hear(tuple(_AGAIN), self._lost)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: what it normalised is gone."""
        self._made.clear()

    def _normalised(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if private.graph_task() == -1:
            self._made.put(out, ("sigmoid" if func is _FIRST[1] else "softmax", self.host.line()))

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        # A loss that is only looked at trains nothing.
        if not given.requires_grad or private.graph_task() != -1:
            return
        how, made = self._made.get(given) or ("", None)
        place = self.host.line() if how == _AGAIN[func] else None
        if place is not None:
            self.sites.setdefault(place, NormalisedTwice(place=place, made=made, how=how)).calls += 1
