"""How far an observed program is, from what it has written down so far."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

_KEPT = 120
"""Looks at memory and time that are kept, for a chart of the latest."""


class _Line(msgspec.Struct):
    """The fields of a record that are read; every other is skipped."""

    k: str
    n: int = 0
    t: float = 0.0
    count: int = 1
    tick: int = 0
    bytes: int = 0
    steps: int = 0
    phases: dict[str, float] = {}
    allocated: int | None = None
    resident: Any = None
    """A number in one kind of record, a list of them in another."""
    found: str = ""
    pid: int = 0
    argv: list[str] = []


class Tail:
    """Reads a rank's file as it grows. `read` takes what is new; the attributes say what is known by now.

    `growth` is in bytes per step, `memory` in bytes: the device's where the program has one, else the resident set.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.started = time.monotonic()
        self.step = 0
        self.memory = 0
        self.growth: float | None = None
        self.bad_since: int | None = None
        """The step whose loss or gradient was the first that was not finite."""
        self.phases: dict[str, float] = {}
        self.memories: deque[int] = deque(maxlen=_KEPT)
        self.pid = 0
        self.argv: list[str] = []
        self.ended = False
        self._times: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._decode = msgspec.json.Decoder(_Line).decode
        self._position = 0
        self._on_device = False

    @property
    def seconds(self) -> float:
        """Since this began to be read."""
        return time.monotonic() - self.started

    @property
    def step_seconds(self) -> float | None:
        """The mean of the latest steps."""
        if len(self._times) < 2:
            return None
        (first, began), (last, ended) = self._times[0], self._times[-1]
        return (ended - began) / (last - first) if last > first else None

    def read(self) -> None:
        """Take what is new. Half a line waits for its other half."""
        try:
            with self.file.open("rb") as stream:
                stream.seek(self._position)
                new = stream.read()
        except OSError:
            return
        # Without a line end `rfind` gives -1, and nothing is taken.
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for raw in whole.splitlines():
            try:
                self._take(self._decode(raw))
            # The report at the end says what is damaged.
            except msgspec.DecodeError:
                continue

    def _take(self, line: _Line) -> None:
        if line.k == "step":
            self._take_step(line)
        elif line.k == "survivors" and line.steps:
            self.growth = line.bytes / line.steps
        elif line.k == "nonfinite" and self.bad_since is None:
            self.bad_since = line.tick
        elif line.k in ("host", "hostsamples") and not self._on_device:
            values = line.resident if isinstance(line.resident, list) else [line.resident]
            self._remember(values[-1] if values else None)
        elif line.k == "program":
            self.pid, self.argv = line.pid, line.argv
        elif line.k == "outcome":
            self.ended = True

    def _take_step(self, line: _Line) -> None:
        self.step = line.n
        self._times.append((line.n, line.t))
        for phase, seconds in line.phases.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + seconds
        if line.allocated is not None:
            # From here on the device's memory is shown, and not the resident set.
            self._on_device = True
            self._remember(line.allocated)

    def _remember(self, memory: Any) -> None:
        if isinstance(memory, int):
            self.memory = memory
            self.memories.append(memory)


class Tails:
    """Reads all files of a recording's folder as they grow: a launcher's ranks write one each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._tails: dict[Path, Tail] = {}

    def read(self) -> Tail:
        """Take what is new, and give the process that has come furthest: the one that trains."""
        for file in sorted(self.directory.glob("*.jsonl")):
            if file not in self._tails:
                self._tails[file] = Tail(file)
        for tail in self._tails.values():
            tail.read()
        return max(self._tails.values(), key=lambda tail: tail.step, default=Tail(self.directory))

    @property
    def ended(self) -> bool:
        """Whether every process has written how it ended."""
        return bool(self._tails) and all(tail.ended for tail in self._tails.values())
