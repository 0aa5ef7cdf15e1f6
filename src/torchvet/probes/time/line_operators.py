"""Counts the operators of each of the user's lines in sampled steps: what takes time there without any is Python's."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import SMALL, LineOperations, OperatorsAt

_JOINING = {torch.ops.aten.cat.default, torch.ops.aten.stack.default}
_READING = {torch.ops.aten.select.int, torch.ops.aten._local_scalar_dense.default, torch.ops.aten.index.Tensor}
_UNBIND = torch.ops.aten.unbind.int
_ITERATES = torch.Tensor.__iter__.__code__
"""`for x in t`, and all of Python's own that goes through what it is given: `sum(t)`, `max(t)`, `list(t)`."""
_MODULE = torch.nn.modules.module.__file__
"""Where torch calls a module."""
_LOOKS = 16
"""Operators of a line that tell whether it calls a module."""
_MOST = 1000
_MOST_SERIES = 24
_SHOWN = 150


def within_backward() -> bool:
    """Whether autograd runs the operator: it joins gradients on the line of the backward pass."""
    return bool(private.graph_task() != -1)


class _Line:
    """One line's counts; `joined` by tick."""

    __slots__ = ("count", "joined", "modules", "place", "reads")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.count = self.reads = 0
        self.modules = False
        self.joined: dict[int, int] = {}


class LineOperators(TimeWatcher):
    """How many operators each line runs."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._lines: dict[tuple[int, int], _Line] = {}
        self._cut = 0
        """Windows that ended in the middle of a step of too many operators."""

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self.host.ledger.listeners.append(self._operator)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        frame = sys._getframe(2)
        user, inner = self.host.ledger.located(frame)
        at = user or inner
        if at is None:
            return
        # By identity: hashing a code object goes through all of it.
        key = id(at[0]), at[1]
        line = self._lines.get(key)
        if line is None:
            place = place_of_line(at) if len(self._lines) < _MOST else None
            if place is None:
                return
            line = self._lines[key] = _Line(place)
        line.count += 1
        if line.count <= _LOOKS and not line.modules:
            line.modules = _in_module(frame, at)
        line.reads += _read(func, frame, at, out)
        # By tick, so that growth from step to step shows.
        if func in _JOINING and len(line.joined) < _MOST_SERIES and not within_backward():
            tick = self.host.tick
            line.joined[tick] = line.joined.get(tick, 0) + out.numel() * out.element_size()

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """Where it held no whole step, a part of one was counted."""
        # A cohort without steps covered a part of one.
        self._cut += not cohort.steps

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._lines.clear()
        self._cut = 0

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's counts."""
        found = sorted(self._lines.values(), key=lambda line: -line.count)[:_SHOWN]
        if found:
            sampled = self.host.sampled_steps + self._cut
            yield LineOperations(sampled=sampled, cut=self._cut, lines=[_told(line) for line in found])


def _in_module(frame: FrameType | None, at: Line) -> bool:
    """Whether an operator runs in a module that the line has called."""
    while frame is not None and frame.f_code is not at[0]:
        if frame.f_code.co_filename == _MODULE:
            return True
        frame = frame.f_back
    return False


def _read(func: Any, frame: FrameType, at: Line, out: Any) -> int:
    """How many elements, or rows of a few, an operator takes out of a tensor for the user's own line."""
    # What a function of torch's calls below the line is no loop of the user's.
    if func in _READING and at[0] is frame.f_code:
        return not isinstance(out, torch.Tensor) or out.numel() <= SMALL
    if func is _UNBIND and frame.f_code is _ITERATES:
        return len(out) if out and out[0].numel() <= SMALL else 0
    return 0


def _told(line: _Line) -> OperatorsAt:
    joined, ticks = list(line.joined.values()), list(line.joined)
    return OperatorsAt(
        place=line.place, count=line.count, reads=line.reads, modules=line.modules, joined=joined, ticks=ticks
    )
