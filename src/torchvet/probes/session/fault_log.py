"""Has the interpreter write down where each thread was when a signal such as SIGSEGV or SIGABRT ends the process.

Of several ranks also when SIGTERM does: launchers end by it those that waited for one that has failed. And when a call
keeps the interpreter's lock for long, in the program or after its end: a destructor of torch's may wait under it for a
thread that needs it, and no Python runs then that could say so. What is written is read by `recording/faults.py`. A
program that has `faulthandler` enabled itself, or has it write tracebacks later, keeps its own.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from torchvet.probes.session.stall_clock import StallClock
from torchvet.recording.writer import out_of_the_way

_STALLED, _LATE = 60.0, 30.0
"""Seconds without any Python, and seconds from the program's end to that of its process."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)


class FaultLog:
    """The file beside a process's record; there is none once the process has ended in another way."""

    def __init__(self) -> None:
        self._path = Path()
        self._file: BinaryIO | None = None
        self._clock = StallClock()

    def begin(self, record: Path) -> None:
        """Listen for fatal signals; the file lies beside `record`."""
        # It has one file for the process: enabling it again would take the program's away.
        if faulthandler.is_enabled():
            return
        self._path = record.with_suffix(".fault")
        with suppress(OSError, RuntimeError):
            # At a high number: programs count on getting the low descriptors. Unbuffered, as C writes to
            # the descriptor.
            self._file = os.fdopen(out_of_the_way(os.open(self._path, _NEW)), "wb", buffering=0)
            faulthandler.enable(self._file)
            if os.environ.get("WORLD_SIZE", "1") not in ("", "1") and hasattr(faulthandler, "register"):
                # `chain`: the program's own handler runs as well.
                faulthandler.register(signal.SIGTERM, self._file, chain=True)
                self._clock.begin()

    def alive(self) -> None:
        """Python runs. Unless this is called again in time, the interpreter writes down where each thread is."""
        if self._file is None or not self._clock.ours:
            return
        with suppress(OSError, RuntimeError, ValueError):
            if os.fstat(self._file.fileno()).st_size:  # it went on from there
                os.ftruncate(self._file.fileno(), 0)
                self._file.seek(0)
            self._clock.arm(_STALLED, self._file)

    def last(self) -> None:
        """Nothing of torchvet's runs any more in this process: what keeps it from ending is written down."""
        if self._file is None or not self._clock.ours:
            return
        with suppress(OSError, RuntimeError):
            self._file = os.fdopen(out_of_the_way(os.open(self._path, _NEW)), "wb", buffering=0)
            self._clock.arm(_LATE, self._file)

    def forsake(self) -> None:
        """This is a forked child, or the process goes on unobserved: its end is not to be written down here."""
        if self._file is not None:
            faulthandler.disable()
            if hasattr(faulthandler, "unregister"):
                faulthandler.unregister(signal.SIGTERM)
            self._clock.leave()
            self._file = None

    def end(self) -> None:
        """The process is about to end. What crashes from here on is written into a file that nobody can see."""
        self._clock.stop()
        if self._file is not None:
            with suppress(OSError):
                # What was written by then belongs to a crash that another thread is in.
                if os.fstat(self._file.fileno()).st_size == 0:
                    self._path.unlink()
