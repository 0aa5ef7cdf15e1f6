"""Layers that run with autocast off in a thread that an active region waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable
from types import FrameType

import torch
from torch import nn

from torchvet.probes.base.ledger import Line, locate, place_of_line
from torchvet.probes.precision.autocast_regions import HALVES, Region, Regions
from torchvet.recording.records.autocast import ThreadForward
from torchvet.recording.records.base import Place, Record

_WAITS = {("threading.py", "join"), ("threading.py", "wait"), ("threading.py", "_wait_for_tstate_lock"),
          ("_base.py", "result"), ("pool.py", "get"), ("pool.py", "wait"), ("_base.py", "result_iterator"),
          ("_base.py", "__exit__"), ("_base.py", "wait")}  # fmt: skip
"""Functions of the standard library's threads, executors and pools that wait for work to end."""
_DEPTH = 6


class _Use:
    def __init__(self, region: Region, module: str) -> None:
        self.region = region
        self.module = module
        self.calls = 0


class ThreadProbe:
    """One for the session."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._uses: dict[tuple[Line | None, Place], _Use] = {}

    def called(self, module: nn.Module, output: object) -> None:
        """A layer ran on a thread that is in no region."""
        if not isinstance(output, torch.Tensor) or output.dtype is not torch.float32 or self._regions.stack():
            return
        device = output.device.type
        if torch.is_autocast_enabled(device):
            return
        region = self._waiting(device)
        user, inner = locate(sys._getframe(2))
        line = user or inner
        if region is None:
            return
        use = self._uses.setdefault((line, region.site.place), _Use(region, type(module).__name__))
        use.calls += 1

    def records(self) -> Iterable[Record]:
        """The running totals."""
        for (line, site), use in list(self._uses.items()):
            dtype = HALVES.get(use.region.dtype, "?")
            # A pool that is given a module itself runs it without a line of the program's on its stack.
            place = (place_of_line(line) if line is not None else None) or site
            yield ThreadForward(place=place, region=site, dtype=dtype, calls=use.calls, module=use.module)

    def _waiting(self, device: str) -> Region | None:
        """The active region of a thread that waits for another's work."""
        active = {}
        for thread, stack in self._regions.others():
            region = next((r for r in reversed(stack) if r.device == device), None)
            if region is not None and region.enabled:
                active[thread] = region
        waiting = _waiting_threads(active)
        return next((region for thread, region in active.items() if thread in waiting), None)


def _waiting_threads(asked: Container[int]) -> set[int]:
    """Which of some threads wait for another's work."""
    now = sys._current_frames()
    try:
        return {thread for thread, frame in now.items() if thread in asked and _waits(frame)}
    finally:
        # This frame is in it too: a cycle that would keep every frame around it, and the program's tensors.
        now.clear()


def _waits(frame: FrameType | None) -> bool:
    for _ in range(_DEPTH):
        if frame is None:
            return False
        if (os.path.basename(frame.f_code.co_filename), frame.f_code.co_name) in _WAITS:
            return True
        frame = frame.f_back
    return False
