"""How far the reading of many files is, on stderr: files done, of how many, megabytes a second."""

from __future__ import annotations

import time
from typing import TextIO

_OFTEN, _RARELY = 0.1, 10.0
"""Seconds between two lines: on a terminal, where one replaces the other, and elsewhere."""


class Progress:
    """Counts digests, and says so now and then."""

    def __init__(self, files: int, stream: TextIO, wanted: bool) -> None:
        self.files, self.stream, self.wanted = files, stream, wanted
        self.terminal = stream.isatty()
        self.done = self.bytes = 0
        self.started = self.said = time.monotonic()

    def add(self, size: int) -> None:
        """A file of so many bytes is done."""
        self.done += 1
        self.bytes += size
        now = time.monotonic()
        if self.wanted and now - self.said >= (_OFTEN if self.terminal else _RARELY):
            self.said = now
            self._say()

    def end(self) -> None:
        """No more files come."""
        if self.wanted:
            self._say()
            if self.terminal:
                self.stream.write("\n")

    def text(self) -> str:
        """What there is to say."""
        rate = self.bytes / 1e6 / max(1e-9, time.monotonic() - self.started)
        return f"torchvet: {self.done:,} of {self.files:,} files · {rate:,.1f} MB/s"

    def _say(self) -> None:
        self.stream.write(f"\r\x1b[K{self.text()}" if self.terminal else f"{self.text()}\n")
        self.stream.flush()
