"""Looks for models made like a trained one that run beside it without gradients, and whose weights never change."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.elements import some_of
from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, frames, tap, user_lines
from torchvet.probes.base.schedule import Checkups
from torchvet.recording.records.training import UnchangedCopy

_WHAT = "models that are copies of a trained one"
_FEW, _PARAMETERS = 64, 8
"""Elements of a parameter that are compared, and parameters of a model: the largest."""
_MOST_LOADS, _CALLS = 16, 4
"""Loads into one model whose lines are kept, and lines of the way to each."""


class UnchangedCopies(Watcher):
    """Copies of trained models."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups, self._numbers = Checkups(), itertools.count()
        self._loads: weakref.WeakKeyDictionary[torch.nn.Module, list[Place]] = weakref.WeakKeyDictionary()
        """The lines that have loaded weights into a model, with those that called them."""
        self._found: dict[int, tuple[weakref.ref[torch.nn.Module], UnchangedCopy, torch.Tensor]] = {}
        """By model: what was seen of it, and a few elements of its weights at the first look."""

    def install(self) -> None:
        """Hear which lines load weights."""
        self.replace(torch.nn.Module, "load_state_dict", tap(self.host, _WHAT, after=self._loaded))

    def _loaded(self, _: Any, module: torch.nn.Module, *__: Any, **___: Any) -> None:
        lines = self._loads.setdefault(module, [])
        if len(lines) < _MOST_LOADS * _CALLS:
            lines += user_lines(sys._getframe(3), _CALLS)

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Does one of them run, without gradients, in a step that is looked at?"""
        known = self._found.get(id(module))
        if known is not None and known[0]() is module and not torch.is_grad_enabled():
            known[1].passes += 1
            known[1].used = known[1].used or frames.user_place(3)

    def settle(self, tick: int, kind: StepKind) -> None:
        """At a few steps: whose weights are as they were?"""
        if not self._checkups.due(tick):
            return
        owned, roots = self.host.known.owned(), self.host.known.live_roots()
        shapes = [(root, [p.shape for p in root.parameters()]) for root in roots]
        trained = [made for root, made in shapes if any(id(p) in owned for p in root.parameters())]
        for root, made in shapes:
            if made and made in trained and not any(id(p) in owned for p in root.parameters()):
                self._look(root, tick)

    def _look(self, model: torch.nn.Module, tick: int) -> None:
        largest = sorted(model.parameters(), key=torch.Tensor.numel, reverse=True)[:_PARAMETERS]
        some = [some_of(parameter, _FEW) for parameter in largest]
        # Shards of other ranks' parameters are not looked at.
        if any(one is None for one in some):
            return
        few = torch.cat([one.to("cpu", torch.float64) for one in some if one is not None])
        ref, record, first = self._found.get(id(model), (None, None, few))
        if ref is None or record is None or ref() is not model:  # its identity may have been another's
            record = UnchangedCopy(id=next(self._numbers), model=type(model).__name__, first=tick)
            self._found[id(model)] = weakref.ref(model), record, few
            first = few
        record.looks += 1
        record.last = tick
        record.changes += not torch.equal(few, first)
        record.loaded = self._loads.get(model, [])

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        # One that has changed, too: that takes back what was written before.
        return [record for _, record, _ in self._found.values()]
