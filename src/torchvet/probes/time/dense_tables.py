"""Watches large tables in sampled steps: how many rows are looked up, and what a gradient of all rows takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Place, SiteWatcher, frames, overloads
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


@dataclass
class _Use:
    """The last lookup of a table of some size in the step under way."""

    key: int
    place: Place


class DenseTables(TimeWatcher, SiteWatcher[int, DenseTable]):
    """Tables of which a step looks up few rows, and whose gradient has all."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sizes: dict[tuple[int, int], _Use] = {}

    def install(self) -> None:
        """In sampled steps, hear tables being looked up, and their gradients being made."""
        self.host.hear(_LOOKUPS, self._looked_up)
        self.host.hear(_GRADIENTS, self._differentiated)

    def _looked_up(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        table, rows = args[0], args[1]
        # On a GPU the seconds of an operator are those of its launch.
        if table.numel() < _LEAST or table.device.type != "cpu" or not torch.is_grad_enabled():
            return
        place, key = self.host.line(), table.untyped_storage()._cdata
        if place is None:
            return
        self._sizes[table.shape[0], table.shape[1]] = _Use(key, place)
        count, width = table.shape
        record = self.sites.setdefault(key, DenseTable(place=place, rows=count, columns=width))
        if record.looks < _LOOKS:
            record.looks += 1
            record.touched = max(record.touched, rows.unique().numel())

    def _differentiated(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        use = self._sizes.get((args[2], out.shape[-1]))
        record = self.sites.get(use.key) if use is not None else None
        if record is not None:
            record.seconds += self.host.ledger.took
            record.calls += 1

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Whose table is it, and what is its part of the update?"""
        for record in [one for one in self.sites.values() if one.calls and not one.optimizer]:
            self._ask(record, optimizer)

    def _ask(self, record: DenseTable, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if self.sites.get(parameter.untyped_storage()._cdata) is record:
                    stepped = [p for g in optimizer.param_groups for p in g["params"] if gradient_of(p) is not None]
                    plain = not any(group.get(name) for name in ("weight_decay", "momentum", "maximize", "foreach"))
                    record.optimizer, record.step_place = type(optimizer).__name__, frames.user_place(3)
                    record.exact = plain and record.optimizer in _EXACT
                    record.part = parameter.numel() / max(1, sum(p.numel() for p in stepped))

    def totals(self, tick: int) -> list[DenseTable]:
        """Tables that have a dense gradient."""
        for record in self.sites.values():
            record.sampled = self.host.sampled_steps
        return [record for record in self.sites.values() if record.calls and record.optimizer]
