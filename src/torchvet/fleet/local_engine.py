"""Processes of this machine, one file each at a time.

A pipe for each process says at once that it has died, and of which file. Processes ignore Ctrl-C; the parent ends them.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchvet.checking.workers import cores, interrupts_blocked
from torchvet.fleet.digest import Digest
from torchvet.fleet.engines import DIED, Work
from torchvet.scratch import Scratch

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_PATIENCE = 5.0
"""Seconds that a process has to end when it is asked to."""


class LocalEngine:
    """As many processes as asked for, or one a core."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()

    def digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        """As `Engine` says."""
        with Scratch() as folder:
            crew = _Crew(work, str(folder))
            try:
                yield from crew.run(deque(paths), self.workers)
            finally:
                crew.end()


class _Crew:
    """The processes, and the file that each has in hand."""

    def __init__(self, work: Work, folder: str) -> None:
        import multiprocessing

        # Forking is cheap, and safe where no thread runs: file systems of fsspec may have started some.
        forks = hasattr(os, "fork") and sys.platform == "linux" and threading.active_count() == 1
        self.context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        self.work, self.folder = work, folder
        self.busy: dict[Connection, tuple[BaseProcess, str]] = {}
        self.tried: set[str] = set()

    def run(self, waiting: deque[str], size: int) -> Iterator[Digest]:
        """The digests of all files that wait."""
        from multiprocessing.connection import wait

        while waiting or self.busy:
            while waiting and len(self.busy) < size:
                self._start(waiting.popleft())
            for connection in wait(list(self.busy)):
                found = self._receive(connection, waiting)  # type: ignore[arg-type]
                if found is not None:
                    yield found

    def end(self) -> None:
        """End all processes, whatever they have in hand."""
        for process, _ in self.busy.values():
            process.terminate()
        for process, _ in self.busy.values():
            process.join(_PATIENCE)
            process.kill()
            process.join()

    def _start(self, path: str) -> None:
        mine, theirs = self.context.Pipe()
        # A forked child has the parent's ends too, and none would ever see that the parent is gone.
        inherited = [mine, *self.busy] if self.context.get_start_method() == "fork" else []
        process = self.context.Process(target=_serve, args=(theirs, inherited, self.work, self.folder), daemon=True)
        with interrupts_blocked():
            process.start()
        theirs.close()
        self._give(mine, process, path)

    def _give(self, connection: Connection, process: BaseProcess, path: str) -> None:
        self.busy[connection] = process, path
        try:
            connection.send(path)
        except OSError:
            pass  # it has died: receiving from it says so

    def _receive(self, connection: Connection, waiting: deque[str]) -> Digest | None:
        """What a process has to say, and its next file; None where it has died and its file is tried again."""
        process, path = self.busy.pop(connection)
        try:
            found: Digest = connection.recv()
        except (EOFError, OSError):
            connection.close()
            process.join()
            return self._died(path, waiting)
        if waiting:
            self._give(connection, process, waiting.popleft())
        else:
            connection.close()
            process.join()
        return found

    def _died(self, path: str, waiting: deque[str]) -> Digest | None:
        if path in self.tried:
            return Digest(path=path, error=DIED)
        self.tried.add(path)
        waiting.append(path)
        return None


def _serve(connection: Connection, inherited: Sequence[Connection], work: Work, folder: str) -> None:
    """A process's whole life: paths come, digests go, and it ends when the parent closes the pipe."""
    for other in inherited:
        other.close()
    # What reads a file in a process of its own ends that, and copies are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    tempfile.tempdir = folder  # what a killed process leaves, its parent removes
    while True:
        try:
            path = connection.recv()
            connection.send(work(path))
        except (EOFError, OSError):
            return
