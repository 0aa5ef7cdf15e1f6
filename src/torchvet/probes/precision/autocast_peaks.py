"""What autocast costs and saves at a window's peak: its copies are marked as they are made, and a replay does without.

In float32 there are no copies, and what autocast computed in half precision takes twice the bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.ledger import Birth, Ledger, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.precision.autocast_regions import Regions
from torchvet.recording.records.memory import AutocastPeak

WEIGHT, OTHER, PASSED = "weight", "other", "passed"
"""A copy of a parameter; of anything else; a gradient in half that was only made to be copied into float32."""
_HALVES = (torch.float16, torch.bfloat16)
_NAMES = ("float16", "bfloat16")


class PeakProbe:
    """Copies that autocast makes, marked in the ledger."""

    def __init__(self, regions: Regions, ledger: Ledger) -> None:
        self._regions = regions
        self._ledger = ledger
        self._seen = False

    def copied(self, source: torch.Tensor, out: torch.Tensor) -> None:
        """`_to_copy` has run in a sampled step."""
        # Copies to another device or of integers are not autocast's.
        if source.dtype is out.dtype or {source.dtype, out.dtype} - {torch.float32, *_HALVES}:
            return
        birth = self._birth(out)
        if birth is None:
            return
        if private.graph_task() != -1:
            self._gradient(source, birth, out.dtype in _HALVES)
        elif self._regions.active(out.device.type) is not None:
            self._seen = True
            # What autocast keeps until the region ends; others die with their use.
            weight = out.dtype in _HALVES and source.is_leaf and source.requires_grad
            birth.cast = WEIGHT if weight else OTHER

    def _gradient(self, source: torch.Tensor, birth: Birth, down: bool) -> None:
        """The way back of a copy: what has the precision of float32 is there without autocast too."""
        if not self._seen:
            return
        if down:
            birth.cast = OTHER
            return
        before = self._birth(source)
        if before is not None:
            # The half gradient exists only to be widened into the parameter's.
            before.cast = PASSED

    def _birth(self, tensor: torch.Tensor) -> Birth | None:
        return self._ledger.live.get(tensor.untyped_storage()._cdata)


def without(ledger: Ledger) -> dict[int, int]:
    """By event: the bytes more, or less, that the window would have without autocast; empty where there was none."""
    if not any(birth.cast for birth in ledger.births):
        return {}
    changes: dict[int, int] = defaultdict(int)
    for birth in ledger.births:
        more = _more(birth)
        if more:
            changes[birth.event] += more
            # -1 says that it outlived the ledger.
            if birth.died is not None and birth.died >= 0:
                changes[birth.died] -= more
    return changes


def _more(birth: Birth) -> int:
    if birth.cast:
        return -birth.nbytes
    # In float32 the same tensor would take as much again. A batch or a state in half is the program's wish.
    return birth.nbytes if birth.tensor[1] in _NAMES and birth.phase in ("forward", "backward") else 0


def record(alive: Iterable[Birth], tick: int, peak: int, otherwise: int) -> AutocastPeak:
    """What was alive at the peak, and the peak without autocast: `otherwise` bytes."""
    copies, halves, dtype = 0, 0, ""
    lines: Counter[Any] = Counter()
    for birth in alive:
        if birth.cast == WEIGHT:
            copies += birth.nbytes
            dtype = birth.tensor[1]
            lines[birth.user] += birth.nbytes
        elif not birth.cast and birth.tensor[1] in _NAMES:
            halves += birth.nbytes
    line = max(lines, key=lines.__getitem__, default=None)
    record = AutocastPeak(tick=tick, peak=peak, without=otherwise, copies=copies, halves=halves, dtype=dtype)
    record.place = place_of_line(line)
    return record
