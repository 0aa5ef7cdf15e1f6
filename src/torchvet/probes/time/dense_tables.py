"""Watches large tables in sampled steps: how many rows are looked up, and what a gradient of all rows takes."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, SiteWatcher, frames, overloads
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import DenseTable

_LOOKUPS = overloads("embedding")
_GRADIENTS = overloads("embedding_dense_backward")
_LEAST = 1 << 20
"""Elements of a table below which its gradient is no matter."""
_LOOKS = 32
"""Calls whose rows are counted."""
_EXACT = ("SGD", "Adagrad")
"""Optimizers of torch's that give the same weights with a sparse gradient, as long as rows without one stay."""


class DenseTables(TimeWatcher, SiteWatcher[tuple[int, int], DenseTable]):
    """Tables of which a step looks up few rows, and whose gradient has all: by size, since backward does not say whose
    gradient it makes."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._keys: dict[int, tuple[int, int]] = {}
        """By storage: the size of a table that was looked up."""

    def install(self) -> None:
        """In sampled steps, hear tables being looked up, and their gradients being made."""
        self.host.hear(_LOOKUPS, self._looked_up)
        self.host.hear(_GRADIENTS, self._differentiated)

    def _looked_up(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        table, rows = args[0], args[1]
        # On a GPU the seconds of an operator are those of its launch.
        if table.numel() < _LEAST or table.device.type != "cpu" or not torch.is_grad_enabled():
            return
        place, size = self.host.line(), (table.shape[0], table.shape[1])
        if place is None:
            return
        self._keys[table.untyped_storage()._cdata] = size
        record = self.sites.setdefault(size, DenseTable(place=place, rows=size[0], columns=size[1]))
        if record.looks < _LOOKS:
            record.looks += 1
            record.touched = max(record.touched, rows.unique().numel())

    def _differentiated(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        record = self.sites.get((args[2], out.shape[-1]))
        if record is not None:
            record.seconds += self.host.ledger.took
            record.calls += 1

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Whose tables are they, and what is their part of the update?"""
        fresh = [id(one) for one in self.sites.values() if one.calls and not one.optimizer]
        if fresh:
            stepped = [(p, g) for g in optimizer.param_groups for p in g["params"] if gradient_of(p) is not None]
            every = max(1, sum(p.numel() for p, _ in stepped))
            for parameter, group in stepped:
                record = self.sites.get(self._keys.get(parameter.untyped_storage()._cdata, (0, 0)))
                if record is not None and id(record) in fresh:
                    self._steps_on(record, optimizer, group, parameter.numel() / every)

    @staticmethod
    def _steps_on(record: DenseTable, optimizer: Optimizer, group: dict[str, Any], part: float) -> None:
        plain = not any(group.get(name) for name in ("weight_decay", "momentum", "maximize", "foreach"))
        exact = plain and type(optimizer).__name__ in _EXACT
        record.exact = exact and (record.exact or not record.optimizer)
        record.optimizer, record.step_place = type(optimizer).__name__, frames.user_place(4)
        record.part += part

    def totals(self, tick: int) -> list[DenseTable]:
        """Tables that have a dense gradient."""
        for record in self.sites.values():
            record.sampled = self.host.sampled_steps
        return [record for record in self.sites.values() if record.calls and record.optimizer]
