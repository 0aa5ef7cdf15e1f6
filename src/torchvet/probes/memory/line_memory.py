"""Counts what each of the user's lines makes in sampled steps: this proves the fix of a slow line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, graphs
from torchvet.probes.base.ledger import Line, locate, makes_storages, place_of_line
from torchvet.probes.internals.modes import OwnMode
from torchvet.recording.records.verify import MadeAt

# What `contiguous()`, `clone()` and copies for incompatible layouts come down to.
_COPYING = torch.ops.aten.clone.default
_MOST = 4000
"""Lines that are kept apart: a program that writes its own code has more."""
_FIRST, _EVERY, _LENGTH = 8, 64, 4
"""Passes of evaluations that are looked at: the first ones, and of each so many the first few."""


class _Sums:
    """Bytes by line, over so many steps."""

    def __init__(self) -> None:
        self.steps = 0
        self.lines: dict[Line, list[int]] = {}

    def add(self, line: Line | None, made: int, op: Any) -> None:
        """Note a new storage."""
        # Known lines still add up when the table is full.
        if line is None or (len(self.lines) >= _MOST and line not in self.lines):
            return
        sums = self.lines.setdefault(line, [0, 0])
        sums[0] += made
        sums[1] += made if op is _COPYING else 0


class _Evaluating(OwnMode):
    """Counts in evaluations, in which the ledger seldom looks."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sums = _Sums()
        self._makes: dict[Any, bool] = {}
        self.broken = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self.broken:
            try:
                self._note(func, out)
            except Exception:  # the program must not suffer from what watches it
                self.broken = True
        return out

    def _note(self, func: Any, out: Any) -> None:
        makes = self._makes.get(func)
        if makes is None:
            makes = self._makes[func] = makes_storages(func)
        if makes and isinstance(out, torch.Tensor):
            made = sum(storage.nbytes() for storage in graphs.storages_of(out))
            # Past this method and `__torch_dispatch__`.
            self.sums.add(locate(sys._getframe(2))[0], made, func)


class LineMemory(Watcher):
    """What each line makes."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sums = _Sums()
        self._read = 0
        self._mode = _Evaluating()
        self._thread = 0
        """Where the mode is on; 0 where it is not."""
        self._passes = 0

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where runs are compared: a run by itself has the lines of its peak."""
        return bool(options.losses)

    def install(self) -> None:
        """Look at the ledger after each operator."""
        self.host.ledger.listeners.append(self._operator)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended, or a pass of an evaluation: was it sampled?"""
        self._sums.steps += self.host.sampling
        evaluates = kind == "evaluation" and not self.host.sampling
        # A dispatch mode belongs to a thread, and only there can it be left.
        if self._thread == threading.get_ident():
            self._mode.sums.steps += 1
            # Also at the first boundary of training after an evaluation.
            if not evaluates or not self._due():
                self._leave()
        # The mode is entered last: what comes before it costs next to nothing.
        elif self._thread == 0 and evaluates and self._due() and not self._mode.broken and self._mode.enter():
            self._thread = threading.get_ident()
        self._passes += kind == "evaluation"

    def remove(self) -> None:
        """Leave torch as it was."""
        if self._thread == threading.get_ident():
            self._leave()
        super().remove()

    def _due(self) -> bool:
        return self._passes < _FIRST or self._passes % _EVERY < _LENGTH

    def _leave(self) -> None:
        # Within `inference_mode` or a backward pass the mode stays on until a boundary at which it can be left.
        if self._mode.can_leave:
            self._mode.leave()
            self._thread = 0

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        births = self.host.ledger.births
        # The ledger begins a new list for each.
        if len(births) < self._read:  # another window
            self._read = 0
        for birth in births[self._read :]:
            if birth.op != "adopted":
                self._sums.add(birth.user, birth.nbytes, birth.op)
        self._read = len(births)

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's sums: one record for a line that is in several code objects."""
        found: dict[Place, MadeAt] = {}
        for sums in (self._sums, self._mode.sums):
            counted: set[Place] = set()
            for line, (made, copied) in sums.lines.items():
                place = place_of_line(line)
                if place is None:
                    continue
                record = found.setdefault(place, MadeAt(place=place, sampled=0))
                # A line in several code objects (a function made anew) ran in the same steps.
                record.sampled += 0 if place in counted else sums.steps
                record.bytes += made
                record.copied += copied
                counted.add(place)
        return found.values()
