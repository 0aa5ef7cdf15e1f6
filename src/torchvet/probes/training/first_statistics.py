"""Looks for models whose weights the program changes by itself, and that still evaluate with batch norm's first
statistics."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, StepKind, Watcher, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.internals import private
from torchvet.recording.records.training import ENOUGH_PASSES, FirstStatistics

_MOST_PASSES = 400
"""Forward passes that are heard of at most: each costs time."""
_FEW = 16
"""Elements of a parameter that are compared."""


class FollowedAverages(Watcher):
    """Averaged models' batch norm."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups = Checkups()
        self._heard = 0
        self._found: dict[int, tuple[weakref.ref[torch.nn.Module], FirstStatistics, torch.Tensor | None]] = {}
        """By model: what was seen of it, and a few elements of its weights at the last look."""

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Does one of them evaluate?"""
        self._heard += bool(self._found)
        known = self._found.get(id(module))
        if known is not None and known[0]() is module and not module.training:
            known[1].passes += 1
            known[1].used = known[1].used or frames.user_place(3)

    def wants_modules(self) -> bool:
        """Whether an evaluation that begins may be one's, of which that is not known yet."""
        waiting = any(record.untouched and record.passes < ENOUGH_PASSES for _, record, _ in self._found.values())
        return waiting and self._heard < _MOST_PASSES

    def settle(self, tick: int, kind: StepKind) -> None:
        """At a few steps: whose weights have changed, and whose statistics have not?"""
        if self.host.sampling:
            self._look_who_writes()
        if not self._checkups.due(tick):
            return
        owned = self.host.known.owned()
        for model in self.host.known.live_roots():
            # In eval mode and in no optimizer: an averaged copy.
            if not model.training and not any(id(p) in owned for p in model.parameters()):
                self._look(model)

    def _look(self, model: torch.nn.Module) -> None:
        layers = [m for m in model.modules() if isinstance(m, private.BatchNorms) and m.num_batches_tracked is not None]
        weight = _largest(model)
        if not layers or weight is None:
            return
        record = FirstStatistics(model=type(model).__name__, layers=len(layers))
        ref, record, before = self._found.get(id(model), (weakref.ref(model), record, None))
        # The identity was another's; the next look begins anew.
        if ref() is not model:
            return
        # A copy of a few elements tells that the program writes to it.
        few = weight.detach().flatten()[:_FEW].clone()
        if before is not None and not torch.equal(few, before):
            record.changes += 1
            # Mean 0 and variance 1 exactly, as the layer was built.
            record.untouched += all(map(_is_as_made, layers))
        self._found[id(model)] = ref, record, few

    def _look_who_writes(self) -> None:
        """In a step whose operators were heard: which line has made or changed these weights?"""
        for ref, record, _ in self._found.values():
            model = ref() if record.written is None else None
            weight = _largest(model) if model is not None else None
            if weight is not None:
                changed = self.host.ledger.updated.get(weight.untyped_storage()._cdata)
                # Changed in place, or made anew and put there by `.data`.
                record.written = changed or self.host.made_at(weight)

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return [record for _, record, _ in self._found.values() if record.untouched]

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is to be held."""
        self._found = {key: (ref, record, None) for key, (ref, record, _) in self._found.items()}


def _largest(model: torch.nn.Module) -> torch.Tensor | None:
    return max(model.parameters(), key=torch.Tensor.numel, default=None)


def _is_as_made(layer: Any) -> bool:
    """Whether it has never seen a batch in train mode, and was given no other's statistics."""
    mean, var = layer.running_mean, layer.running_var
    return mean is not None and var is not None and not bool(mean.any()) and bool((var == 1).all())
