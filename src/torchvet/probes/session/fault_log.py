"""Has the interpreter write down where each thread was when a signal such as SIGSEGV or SIGABRT ends the process.

Of several ranks also when SIGTERM does: launchers end by it those that waited for one that has failed. What is written
is read by `recording/faults.py`. A program that has `faulthandler` enabled itself keeps its own.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from torchvet.recording.writer import out_of_the_way

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)


class FaultLog:
    """The file beside a process's record; there is none once the process has ended in another way."""

    def __init__(self) -> None:
        self._path = Path()
        self._file: BinaryIO | None = None

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

    def forsake(self) -> None:
        """This is a forked child, or the process goes on unobserved: its end is not to be written down here."""
        if self._file is not None:
            faulthandler.disable()
            if hasattr(faulthandler, "unregister"):
                faulthandler.unregister(signal.SIGTERM)
            self._file = None

    def end(self) -> None:
        """The process is about to end. What crashes from here on is written into a file that nobody can see."""
        if self._file is not None:
            with suppress(OSError):
                # What was written by then belongs to a crash that another thread is in.
                if os.fstat(self._file.fileno()).st_size == 0:
                    self._path.unlink()
