"""Looks for losses that normalise what has been normalised: a softmax or sigmoid whose result goes into another."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.internals import private
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.training import NormalisedTwice

_aten = torch.ops.aten
_FIRST = (_aten._softmax.default, _aten.sigmoid.default)
_AGAIN = {_aten._log_softmax.default: "softmax", _aten.binary_cross_entropy_with_logits.default: "sigmoid"}


class NormalisedLosses(Watcher):
    """Losses that normalise again."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, NormalisedTwice] = {}
        self._made: dict[int, tuple[weakref.ref[torch.UntypedStorage], str, Place | None]] = {}
        """By storage: what was normalised in this step, how and where."""

    def install(self) -> None:
        """Be told of what normalises, and of the losses that do."""
        self.host.hear(_FIRST, self._normalised)
        self.host.hear(tuple(_AGAIN), self._lost)

    def boundary(self, tick: int, kind: Any) -> None:
        """A step ended: what it normalised is gone."""
        self._made.clear()

    def _normalised(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if private.graph_task() == -1:
            storage = out.untyped_storage()
            how = "sigmoid" if func is _FIRST[1] else "softmax"
            self._made[storage._cdata] = (weakref.ref(storage), how, self.host.line())

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        if not given.requires_grad or private.graph_task() != -1:
            return
        storage = given.untyped_storage()
        known = self._made.get(storage._cdata)
        place = self.host.line() if known is not None and known[0]() is storage and known[1] == _AGAIN[func] else None
        if known is None or place is None:
            return
        record = self._sites.setdefault(place, NormalisedTwice(place=place, made=known[2], how=known[1]))
        record.calls += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        return list(self._sites.values())
