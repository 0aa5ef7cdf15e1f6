"""Looks for tables that modules keep by position, whose rows come in equal groups from where half precision stops
telling whole numbers apart: they were computed once, perhaps before any step was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

import torch

from torchvet.probes.base.callers import place_in
from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.objects import naming
from torchvet.recording.records.numeric import EXACT, PositionTable

_WHAT = "tables by position"
_MOST_ELEMENTS = 1 << 22
_LOOKS = 4
_AMONG = 0.3, 0.7
"""The share of neighbors from 256 to 512 that are equal: about every second one is, rounded to even."""


class PositionTables(Watcher):
    """Tables of module's attributes and buffers, at a few steps."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups = Checkups()
        self._looks = 0
        self._found: dict[tuple[str, str], PositionTable] = {}

    def settle(self, tick: int, kind: StepKind) -> None:
        """Look at what modules keep."""
        if self._looks >= _LOOKS or not self._checkups.due(tick):
            return
        self._looks += 1
        with self.host.looking(_WHAT), torch.no_grad():
            for model in self.host.known.live_roots():
                for module in model.modules():
                    self._look(module)

    def _look(self, module: torch.nn.Module) -> None:
        kind = type(module)
        for name, table in _tables(module):
            found = _groups(table) if (kind.__name__, name) not in self._found else None
            if found is not None:
                dtype, equal = found
                self._found[kind.__name__, name] = PositionTable(
                    module=kind.__name__,
                    attribute=name,
                    place=_made_by(kind),
                    dtype=dtype,
                    length=len(table),
                    distinct=len(table) - equal,
                )

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return list(self._found.values())


def _tables(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Floating-point tensors that a module keeps and does not train, as rows by position."""
    space = naming.namespace(module) or {}
    for name, value in [*space.items(), *module.named_buffers(recurse=False)]:
        plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu"
        if plain and value.is_floating_point() and not value.requires_grad and value.numel() <= _MOST_ELEMENTS:
            # `(1, positions, 1, features)` is one, too.
            rows = value.detach().squeeze()
            if rows.dim() == 2:
                yield name, rows


def _groups(table: torch.Tensor) -> tuple[str, int] | None:
    """The dtype in which the positions of a table were counted, and how many of its rows are as the one before; None
    where rows do not come in such groups."""
    for dtype, exact in EXACT.items():
        # Row n + 1 is compared with row n. First of all those that must differ, where nearly every other table ends.
        if len(table) < exact + exact // 2 or bool(_equal(table[:exact]).any()):
            continue
        among = _equal(table[exact : 2 * exact + 1])
        # No four are the same: no other reason for equal rows would have it so.
        if bool((among[2:] & among[1:-1] & among[:-2]).any()):
            continue
        if _AMONG[0] <= float(among.double().mean()) <= _AMONG[1]:
            return dtype, int(_equal(table).sum())
    return None


def _equal(rows: torch.Tensor) -> torch.Tensor:
    """Whether each row is as the one before."""
    return (rows[1:] == rows[:-1]).all(dim=1)


def _made_by(kind: type[Any]) -> Place | None:
    """Where the class of a module runs it."""
    forward = kind.__dict__.get("forward")
    return place_in(forward.__code__) if type(forward) is FunctionType else None
