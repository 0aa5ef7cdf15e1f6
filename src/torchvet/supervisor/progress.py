"""What a terminal shows while the observed program runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TextIO

from torchvet.formatting import size
from torchvet.supervisor.tail import Tail, Tails

FIRST, LONGEST = 10.0, 300.0
"""Seconds until the first line where the program writes to the same terminal, and between two at the most."""
_FIND_FIRST, _FIND_AGAIN, _FIND_SHARE = 15.0, 30.0, 0.03
"""Seconds until findings are looked for, and between two looks; the share of the time that looking may take."""

Find = Callable[[], list[str]]


class SoFar:
    """The findings so far, looked for now and then in a thread, so that signals are passed on meanwhile."""

    def __init__(self, find: Find) -> None:
        self.found: list[str] = []
        self._find = find
        self._thread: Thread | None = None
        self._next = time.monotonic() + _FIND_FIRST

    def tick(self) -> None:
        """Look again if it is time."""
        if time.monotonic() >= self._next and (self._thread is None or not self._thread.is_alive()):
            self._thread = Thread(target=self._look, daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Wait for a look that is going on: two diagnoses at once would only slow each other down."""
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        began = time.monotonic()
        try:
            self.found = self._find()
        except Exception:
            # The report at the end is what counts, and it says what went wrong.
            self._next = float("inf")
            return
        took = time.monotonic() - began
        # A diagnosis of a long recording takes longer, and so comes more rarely.
        self._next = time.monotonic() + max(_FIND_AGAIN, took / _FIND_SHARE)


class Progress:
    """One line on stderr: step, time, memory, growth, findings so far; of a trial first which one it is.

    Where the program's output is elsewhere the line is drawn again in place. Where both are one terminal it comes as a
    line of its own, ever more rarely: what the program draws there stays as it is.
    """

    def __init__(
        self,
        directory: Path,
        stream: TextIO,
        wanted: bool,
        find: Find | None = None,
        trial: str = "",
        in_place: bool | None = None,
    ) -> None:
        """`trial` says which trial of how many the run is. `in_place`: whether the program writes elsewhere; by
        default whether stdout is no terminal."""
        self.stream = stream
        self.trial = trial
        self.tails = Tails(directory)
        self.so_far = SoFar(find or list)
        self.shown = wanted and stream.isatty()
        # The program's stdout is this process's.
        self.in_place = in_place if in_place is not None else not sys.stdout.isatty()
        self.drawn = ""
        self._pause = FIRST
        self._next = time.monotonic() + (0.0 if trial else FIRST)

    def tick(self) -> None:
        """Read what is new and show it."""
        if not self.shown:
            return
        tail = self.tails.read()
        self.so_far.tick()
        if self.in_place:
            self._draw(self.text(tail))
        elif time.monotonic() >= self._next:
            # Twice as long each time: a long training is not to be drowned in lines.
            self._pause = min(2 * self._pause, LONGEST)
            self._next = time.monotonic() + self._pause
            self._write(f"{self.text(tail)}\n")

    def clear(self) -> None:
        """Take the line away: the report comes next."""
        self.so_far.end()
        if self.drawn:
            self._draw("")

    def text(self, tail: Tail) -> str:
        """What there is to say."""
        parts = [self.trial] if self.trial else []
        parts += [f"step {tail.step:,}" if tail.step else "no step yet", f"{tail.seconds:.0f} s"]
        if tail.memory:
            parts.append(size(tail.memory))
        if tail.growth:
            parts.append(f"{size(tail.growth)} per step still alive")
        if tail.bad_since is not None:
            parts.append(f"not finite in step {tail.bad_since:,}")
        if self.so_far.found:
            parts.append(f"so far: {', '.join(self.so_far.found)}")
        return f"torchvet: {' · '.join(parts)}"

    def _draw(self, text: str) -> None:
        if text != self.drawn:
            self._write(f"\r\x1b[K{text}")
            self.drawn = text

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
