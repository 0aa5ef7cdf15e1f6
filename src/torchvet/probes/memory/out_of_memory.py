"""Leaves a snapshot of device memory when a request fails, whether or not the program catches the error, and one of a
simulated device at the end."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import Host, Unchecked, Watcher, tap
from torchvet.recording.records.memory import MemoryHistory
from torchvet.recording.records.training import MemoryFailure

EVENTS = 100_000
"""Events of the allocator that are kept: those of a few dozen steps of a large model."""
_MOST_SECONDS = 20.0
"""Spent on writing snapshots of requests that failed, at most: batch-size finders let many fail."""


_WHAT = "the history of device memory"


class Left(NamedTuple):
    """A snapshot that was left, and when (`time.monotonic`)."""

    path: Path
    at: float


_latest: list[Left] = []


def latest() -> Left | None:
    """The snapshot of the latest failure in this process."""
    return _latest[-1] if _latest else None


class OutOfMemoryWatcher(Watcher):
    """Snapshots of device memory at out-of-memory errors.

    On a simulated GPU the history of allocations is recorded, with Python's lines, unless the program records its own.
    """

    events = EVENTS

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._theirs = False
        self._seconds = 0.0
        self._failures = 0
        self._recording = self._installed = False
        # Taken before it is replaced: torchvet's own call must not look like the program's.
        self._record = torch.cuda.memory._record_memory_history

    def install(self) -> None:
        """Start recording and subscribe to failures, once the program uses a GPU: not before, since a process
        that has used one cannot fork into processes that do."""
        self._installed = True
        self.replace(torch.cuda.memory, "_record_memory_history", tap(self.host, _WHAT, before=self._they_record))
        if torch.cuda.is_available():
            # Private; torch runs it at once where a device is in use, else when one is.
            torch.cuda._lazy_call(self._start)  # type: ignore[no-untyped-call]

    def _start(self) -> None:
        # torch calls this when a GPU is used first, which may be after the watch has ended.
        if not self._installed:
            return
        with self.host.looking(_WHAT):
            # What a history costs on a real GPU has not been measured: there the snapshot says what is held, not since
            # which line.
            if not self._theirs and self.host.options.simulated_gpu is not None:
                self._record(max_entries=self.events, context="alloc", stacks="python")
                self._recording = True
            # CPU builds lack it. torch has no way to detach: `_failed` asks `active`.
            attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(self._failed)

    def finish(self, how: str, error: BaseException | None) -> None:
        """Leave the history of a simulated device, whoever recorded it."""
        if self.host.options.simulated_gpu is None or not torch._C._cuda_isHistoryEnabled():
            return
        with self.host.looking(_WHAT):
            path = Path(self.host.options.directory) / _named("memory")
            write_snapshot(path)
            self.host.write(MemoryHistory(snapshot=str(path)))

    def unchecked(self) -> Iterable[Unchecked]:
        """Where there is no history there is nothing to judge."""
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if self._installed and used and not self._recording:
            reason = (
                "the program keeps a history of its own, or ended before there was one"
                if self._theirs
                else "a real GPU's history of allocations is not recorded: call "
                "torch.cuda.memory._record_memory_history() and hand a snapshot to `torchvet inspect`"
            )
            yield Unchecked(
                check="fragmentation, and sizes that change from step to step (MEM301, MEM303)", reason=reason
            )

    def remove(self) -> None:
        """Stop recording, unless it is the program that records."""
        super().remove()
        self._installed = False
        if self._recording and not self._theirs:
            # None switches it off. By the name, since the simulated device has put its own there.
            torch.cuda.memory._record_memory_history(None)
        self._recording = False

    def _they_record(self, *_: Any, **__: Any) -> None:
        self._theirs = True

    def _failed(self, device: int, asked: int, total: int, free: int) -> None:
        """torch is about to raise: `asked` bytes of `total` with `free` left at the driver."""
        if not self.host.active:
            return
        with self.host.looking("the snapshot of a failed request for memory"):
            self._failures += 1
            failure = MemoryFailure(tick=self.host.tick, device=device, asked=asked, total=total, free=free, number=0)
            # A batch-size finder lets dozens fail: beyond the time they are counted, without a file.
            failure.number, failure.snapshot = self._failures, self._left() if self._seconds < _MOST_SECONDS else None
            self.host.write(failure)

    def _left(self) -> str:
        """Write the snapshot of the latest failure in place of the one before."""
        began = time.perf_counter()
        options = self.host.options
        # One file for all failures: the latest is what the program died of, or lives with.
        path = Path(options.snapshots or options.directory) / snapshot_name(Path(options.path).stem.strip("<>"))
        write_snapshot(path)
        self._seconds += time.perf_counter() - began
        _latest[:] = [Left(path, time.monotonic())]
        return str(path)


def snapshot_name(stem: str) -> str:
    """What a snapshot at a failure is called: a file a rank."""
    return _named(f"{stem}.oom")


def _named(stem: str) -> str:
    rank = os.environ.get("RANK", "")
    return f"{stem}{f'-rank{rank}' if rank.isdigit() else ''}.pickle"


def write_snapshot(path: Path) -> None:
    """The snapshot as torch writes it, in place when it is whole. Raises OSError where it cannot be written."""
    # By process: ranks and forks may fail at the same moment.
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
