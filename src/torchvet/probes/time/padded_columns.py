"""Counts the columns of batches of texts that are padding in each row, in sampled steps."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, StepKind, overloads
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import PaddedColumns

_LOOKUPS = overloads("embedding")
_PACKING = overloads("_pack_padded_sequence")
_PRODUCTS = overloads("mm addmm")
_LOOKS = 64
"""Calls of one line that are counted: on a GPU each waits for the device."""


class PaddedColumnsProbe(TimeWatcher, SiteWatcher[Place, PaddedColumns]):
    """Batches that are padded further than their longest text."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._packed = False
        self._made: ByStorage[tuple[Place, int]] = ByStorage()
        """What was looked up in this step: where, and the numbers of a word."""
        self._flat: set[Place] = set()
        """Lines whose words go into a layer side by side: its weights are for this width."""

    def install(self) -> None:
        """In sampled steps, hear tables being looked up, and sequences being packed: their padding is not computed."""
        self.host.hear(_LOOKUPS, self._looked_up)
        self.host.hear(_PACKING, self._packs)
        self.host.hear(_PRODUCTS, self._multiplied)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: what it looked up is gone."""
        self._made.clear()

    def _packs(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._packed = True

    def _multiplied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[-2]
        made = self._made.get(given) if self._made else None
        # A layer that takes several words' numbers side by side has a fixed width.
        if made is not None and given.shape[1] > made[1]:
            self._flat.add(made[0])

    def _looked_up(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # Without `padding_idx` nobody says which number is padding.
        padding, indices = args[2] if len(args) > 2 else -1, args[1]
        # One text alone is never padded to another.
        if padding < 0 or indices.dim() != 2 or len(indices) < 2 or not torch.is_grad_enabled():
            return
        place = self.host.line() if private.graph_task() == -1 else None
        if place is None:
            return
        self._made.put(out, (place, out.shape[-1]))
        record = self.sites.setdefault(place, PaddedColumns(place=place, padding=padding))
        if record.calls >= _LOOKS or not indices.numel():
            return
        # The first and the last column that some row has a word in.
        used = (indices != padding).any(0).nonzero()
        words = int(used[-1] - used[0]) + 1 if len(used) else 0
        columns = indices.shape[1]
        # The last one's: of the first step, what it was given counts as made where it is used.
        record.made = self.host.made_at(indices) or record.made
        record.calls += 1
        record.columns += columns
        record.padded += columns - words
        record.least = min(record.least, 1 - words / columns)
        record.width, record.widest = max(record.width, columns), max(record.widest, words)

    def totals(self, tick: int) -> list[PaddedColumns]:
        """Lines whose batches had some."""
        # A packed sequence is not computed on its padding.
        found = [] if self._packed else self.sites.values()
        return [record for record in found if record.padded and record.place not in self._flat]
