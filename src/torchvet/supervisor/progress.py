"""A line on the terminal that says how far the observed program is, from what it has written down so far."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

import msgspec


class _Line(msgspec.Struct):
    """The few fields that the line is made of; every other is skipped."""

    k: str
    n: int = 0
    bytes: int = 0
    steps: int = 0


class Progress:
    """Tails a recording. Shows nothing where the program writes to the same terminal: the two would mix."""

    def __init__(self, file: Path, stream: TextIO, wanted: bool) -> None:
        self.file = file
        self.stream = stream
        self.shown = wanted and stream.isatty() and not sys.stdout.isatty()
        self.decode = msgspec.json.Decoder(_Line).decode
        self.position = 0
        self.step = 0
        self.growth: float | None = None
        self.started = time.monotonic()
        self.drawn = ""

    def tick(self) -> None:
        """Read what is new and draw the line again if it has changed."""
        if not self.shown:
            return
        self._read()
        text = self.text()
        if text != self.drawn:
            self.stream.write(f"\r\x1b[K{text}")
            self.stream.flush()
            self.drawn = text

    def clear(self) -> None:
        """Take the line away."""
        if self.drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.drawn = ""

    def text(self) -> str:
        """What there is to say."""
        steps = f"step {self.step:,}" if self.step else "no step yet"
        growth = f" · {self.growth / 1e6:,.1f} MB per step still alive" if self.growth else ""
        return f"torchvet: {steps} · {time.monotonic() - self.started:.0f} s{growth}"

    def _read(self) -> None:
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.position)
                new = stream.read()
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self.position += len(whole)
        for raw in whole.splitlines():
            try:
                self._take(self.decode(raw))
            except msgspec.DecodeError:
                continue

    def _take(self, line: _Line) -> None:
        if line.k == "step":
            self.step = line.n
        elif line.k == "survivors" and line.steps:
            self.growth = line.bytes / line.steps
