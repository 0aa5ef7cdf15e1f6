"""`torch.cuda.memory._record_memory_history` and what belongs to it, as a build for CUDA has them in `torch._C`."""

from __future__ import annotations

import time
from typing import Any

import torch

from torchvet.simulate.allocation import memory
from torchvet.simulate.allocation.history import ALL, CONTEXTS, NEVER, STATE, frames_of
from torchvet.simulate.allocation.snapshots import marks


def _record(
    enabled: str | None = "all", context: str | None = "all", stacks: str = "all", most: int = 1, clear: bool = False,
    compile_context: bool = False, annotations: bool = False, skipped: list[str] | None = None, pinned: bool = False,
    on_device: bool = True,
) -> None:  # fmt: skip
    """Stacks have Python's frames alone, whichever kind is asked for. The last two parameters came with torch 2.14; the
    host's pinned memory has no history here."""
    for given, known in ((enabled, (None, "state", "all")), (stacks, ("python", "all")), (context, (*CONTEXTS,))):
        if given not in known:
            raise RuntimeError(f"expected one of {known}, got {given!r}")
    if on_device:
        _start_or_stop(enabled is not None, enabled == "all", CONTEXTS[context], most, clear, skipped or [])


def _record_legacy(
    enabled: bool, context: bool = True, most: int = 1, in_trace: bool = False, cpp: bool = False, clear: bool = False,
    compile_context: bool = False, annotations: bool = False, skipped: list[str] | None = None, pinned: bool = False,
    on_device: bool = True,
) -> None:  # fmt: skip
    level = ALL if in_trace else STATE if context else NEVER
    if on_device:
        _start_or_stop(enabled, True, level, most, clear, skipped or [])


def _start_or_stop(on: bool, tracing: bool, context: int, most: int, clear: bool, skipped: list[str]) -> None:
    for held in memory.everyone():
        if on:
            held.history.start(tracing, context, most, clear, skipped)
        else:
            held.history.stop()
    if clear or not on:
        marks.annotations.clear()
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


def _mark(name: str, stage: str) -> None:
    from torchvet.simulate import devices

    marks.annotations.append(
        {"stage": stage, "name": name, "device": devices.current.index, "time_us": time.time_ns() // 1000}
    )


def _enter(self: Any) -> Any:
    _mark(self.name, "START")
    return _plain[0](self)  # type: ignore[no-untyped-call]


def _exit(self: Any, *error: Any) -> Any:
    _mark(self.name, "END")
    return _plain[1](self, *error)


def _listen_to_ranges(on: bool) -> None:
    ours = (_enter, _exit)
    if on and _ranges.__enter__ is _plain[0]:
        _ranges.__enter__, _ranges.__exit__ = ours  # type: ignore[method-assign]
    elif not on and _ranges.__enter__ is _enter:
        _ranges.__enter__, _ranges.__exit__ = _plain  # type: ignore[method-assign]
