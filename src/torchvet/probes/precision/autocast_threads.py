"""Layers that run with autocast off in a thread that an active region waits for."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Container, Iterable
from types import FrameType

import torch
from torch import nn

from torchvet.probes.base.kit import Place, Record, frames, outward
from torchvet.probes.precision.autocast_regions import HALVES, Region, Regions
from torchvet.recording.records.autocast import ThreadForward

# By file and function of the standard library, since the waiting itself is in C.
_WAITS = {
    "threading.py": ("join", "wait", "_wait_for_tstate_lock"),
    "_base.py": ("result", "result_iterator", "__exit__", "wait"),
    "pool.py": ("get", "wait"),
}
"""Functions of the standard library's threads, executors and pools that wait for work to end."""
_DEPTH = 6


class ThreadProbe:
    """One for the session."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._uses: dict[tuple[Place, Place], ThreadForward] = {}

    def called(self, module: nn.Module, output: object) -> None:
        """A layer ran on a thread that is in no region."""
        if not isinstance(output, torch.Tensor) or output.dtype is not torch.float32 or self._regions.stack():
            return
        device = output.device.type
        # A thread that has a region of its own is right.
        region = self._waiting(device) if not torch.is_autocast_enabled(device) else None
        if region is not None:
            site, dtype = region.site.place, HALVES.get(region.dtype, "?")
            # A pool that is given a module itself runs it without a line of the program's on its stack.
            place = frames.user_place() or site
            new = ThreadForward(place=place, region=site, dtype=dtype, calls=0, module=type(module).__name__)
            self._uses.setdefault((place, site), new).calls += 1

    def records(self) -> Iterable[Record]:
        """The running totals."""
        return list(self._uses.values())

    def _waiting(self, device: str) -> Region | None:
        """The active region of a thread that waits for another's work."""
        active = {}
        for thread, stack in self._regions.others():
            region = next((r for r in reversed(stack) if r.device == device), None)
            # The innermost for this device.
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
    codes = (one.f_code for one in itertools.islice(outward(frame), _DEPTH))
    return any(code.co_name in _WAITS.get(os.path.basename(code.co_filename), ()) for code in codes)
