"""A clock of lines in each forked worker of a loader: it leaves its sums in a small file, which the parent reads.

Workers end by signals and by `os._exit`: what is not in the file by then is lost.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from torchvet.probes.time.line_clock import Cell, LineClock, Now
from torchvet.recording.records.timing import LineTime, WorkerTimes

_EVERY = 1.0
"""Seconds from one writing to the next."""
_SLICES = 4
"""Parts of a second that stand for steps: what was seen counts when one has passed."""
_MOST_FILES = 64
_MOST_LINES = 20


class WorkerClock:
    """The clock in one worker."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread = threading.get_ident()
        self._next = time.perf_counter() + _EVERY / 2
        self.clock = LineClock(self._now)

    def end(self) -> None:
        """The worker ends by itself."""
        self.clock.stop()
        self._write()

    def _now(self) -> Now:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + _EVERY
            self._write()
        # A worker has no steps: quarters of a second stand for them.
        return Now(self._thread, int(now * _SLICES), 0)

    def _write(self) -> None:
        tally = self.clock.tally
        # Waiting for the next index is no work of the worker's.
        busy = [cell for cell in tally.cells.values() if cell.looks and cell.doing.stage in ("item", "collate")]
        busy.sort(key=lambda cell: -cell.seconds)
        times = WorkerTimes(
            workers=1,
            seconds=tally.seconds,
            busy=sum(cell.seconds for cell in busy),
            lines=[line_of(cell) for cell in busy[:_MOST_LINES]],
        )
        with suppress(OSError):
            self._file.write_bytes(msgspec.json.encode(times))


def line_of(cell: Cell, steps: int = 0) -> LineTime:
    """A cell as it is written down, with its course over so many steps."""
    doing = cell.doing
    place, *callers = doing.lines
    return LineTime(
        place=place,
        seconds=round(cell.seconds, 6),
        looks=cell.looks,
        steps=cell.steps,
        phase=doing.phase,
        stage=doing.stage,
        calls=doing.calls,
        kinds=list(doing.kinds),
        callers=callers,
        span=doing.span,
        quiet=doing.quiet,
        thirds=cell.course.thirds(steps),
    )


def watched(original: Callable[..., Any], directory: str) -> Callable[..., Any]:
    """A worker's whole work, with a clock beside it where the worker was forked."""
    parent = os.getpid()

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        clock = None
        with suppress(Exception):
            # Spawned workers import torch anew, and have no session.
            if os.getppid() == parent and len(_files(directory, parent)) < _MOST_FILES:
                clock = WorkerClock(Path(directory, f"loader-{parent}-{os.getpid()}.json"))
                clock.clock.start()
        try:
            return original(*args, **kwargs)
        finally:
            if clock is not None:
                with suppress(Exception):
                    clock.end()

    return _worker_loop


def of_workers(directory: str) -> WorkerTimes | None:
    """What all workers of this process have left, which is taken away."""
    found: list[WorkerTimes] = []
    # Read once at the end, and removed: the recording has the sums.
    for file in _files(directory, os.getpid()):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(file.read_bytes(), type=WorkerTimes))
        with suppress(OSError):
            file.unlink()
    if not found:
        return None
    lines = sorted((line for one in found for line in one.lines), key=lambda line: -line.seconds)
    seconds, busy = sum(one.seconds for one in found), sum(one.busy for one in found)
    return WorkerTimes(workers=len(found), seconds=seconds, busy=busy, lines=lines[: 3 * _MOST_LINES])


def _files(directory: str, parent: int) -> list[Path]:
    return sorted(Path(directory).glob(f"loader-{parent}-*.json"))
