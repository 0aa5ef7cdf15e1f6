"""`torch.cuda.memory._record_memory_history` and what belongs to it, as a build for CUDA has them in `torch._C`."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory
from torchvet.simulate.allocation.history import ALL, CONTEXTS, NEVER, STATE, frames_of
from torchvet.simulate.allocation.snapshots import marks


def _record(enabled: str | None, context: str | None, stacks: str, most: int, clear: bool, *more: Any) -> None:
    """Stacks have Python's frames alone, whichever kind is asked for."""
    for given, known in ((enabled, (None, "state", "all")), (stacks, ("python", "all")), (context, (*CONTEXTS,))):
        if given not in known:
            raise RuntimeError(f"expected one of {known}, got {given!r}")
    _start_or_stop(enabled is not None, enabled == "all", CONTEXTS[context], most, clear, more)


def _record_legacy(
    enabled: bool, context: bool, most: int, in_trace: bool, cpp: bool = False, clear: bool = False, *more: Any
) -> None:
    _start_or_stop(enabled, True, ALL if in_trace else STATE if context else NEVER, most, clear, more)


def _start_or_stop(on: bool, tracing: bool, context: int, most: int, clear: bool, more: tuple[Any, ...]) -> None:
    """`more`: for compiled code, for annotations, actions to skip, and since torch 2.14 for the host and the device."""
    skipped = more[2] if len(more) > 2 else ()
    # The later versions' last flag says whether the device is meant.
    if len(more) > 4 and not more[4]:
        return  # the host's pinned memory has no history here
    for held in memory.everyone():
        if on:
            held.history.start(tracing, context, most, clear, skipped or ())
        else:
            held.history.stop()
    # Ranges are of the process, and of no one device.
    marks.restart(min(most, sys.maxsize) if on else 0, clear)
    _listen_to_ranges(on and tracing)


def _traceback(address: int) -> list[dict[str, Any]] | None:
    for held in memory.everyone():
        if address in held.history.stacks:
            return frames_of(held.history.stacks[address])
    return None


def _set_metadata(text: str) -> None:
    marks.metadata = text


COMPILED: dict[str, Any] = {
    "_cuda_record_memory_history": _record,
    "_cuda_record_memory_history_legacy": _record_legacy,
    "_cuda_isHistoryEnabled": lambda: memory.of(None).history.active,
    "_cuda_allocationTraceback": _traceback,
    "_cuda_setMemoryMetadata": _set_metadata,
    "_cuda_getMemoryMetadata": lambda: marks.metadata,
}

# Ranges that the program or torch's optimizers mark: readers of snapshots tell steps by them.

_ranges = torch.autograd.profiler.record_function
_plain = (_ranges.__enter__, _ranges.__exit__)


def _mark(name: str, ends: bool) -> None:
    marks.note(name, ends, devices.current.index, time.time_ns() // 1000)


def _enter(self: Any) -> Any:
    _mark(self.name, False)
    return _plain[0](self)  # type: ignore[no-untyped-call]


def _exit(self: Any, *error: Any) -> Any:
    _mark(self.name, True)
    return _plain[1](self, *error)


def _listen_to_ranges(on: bool) -> None:
    ours = (_enter, _exit)
    if on and _ranges.__enter__ is _plain[0]:
        _ranges.__enter__, _ranges.__exit__ = ours  # type: ignore[method-assign]
    # Another tool may have wrapped ours: then it stays.
    elif not on and _ranges.__enter__ is _enter:
        _ranges.__enter__, _ranges.__exit__ = _plain  # type: ignore[method-assign]
