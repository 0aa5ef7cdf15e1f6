"""Many files by several processes, the answers in the order of the files.

A process that dies (a parser that ran out of stack, the system short of memory) costs the file that it died of and no
other: its files are tried again one at a time. Processes ignore Ctrl-C; the parent ends them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

from torchvet.gc_pause import collector_off

Job = TypeVar("Job")
Answer = TypeVar("Answer")
PARALLEL = 400_000
"""Bytes from which on a second process pays: starting one takes about as long as checking a tenth of this."""
CHUNKS = 8
"""Portions that each process gets, so that all end at about the same time."""


def cores() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def answers(
    jobs: Sequence[Job],
    sizes: Sequence[int],
    work: Callable[[Job], Answer],
    died: Callable[[Job, int], Answer],
    processes: int | None = None,
) -> list[Answer]:
    """`work` of every job. `sizes` are bytes, to share the work out by; `died` is the answer where `work` ended its
    process with an exit status. Without `processes`: as many as pay."""
    total = sum(sizes)
    wanted = processes if processes is not None else min(cores(), 1 + total // PARALLEL)
    wanted = min(wanted, len(jobs))
    if wanted < 2:
        return _serial(jobs, work)
    return _Crew(jobs, work, died).run(_portions(sizes, total, wanted * CHUNKS), wanted)


def _serial(jobs: Sequence[Job], work: Callable[[Job], Answer]) -> list[Answer]:
    found = []
    with collector_off():
        for number, job in enumerate(jobs, 1):
            found.append(work(job))
            # With the collector off nothing else frees rings that a file left behind.
            if number % 200 == 0:
                gc.collect()
    return found


def _portions(sizes: Sequence[int], total: int, number: int) -> list[list[int]]:
    """Indexes of jobs, in order, in portions of about equal size."""
    room, found, current, filled = total / number, list[list[int]](), list[int](), 0
    for index, size in enumerate(sizes):
        current.append(index)
        filled += size
        if filled >= room or len(current) >= 500:
            found.append(current)
            current, filled = [], 0
    return [*found, current] if current else found


class _Crew(Generic[Job, Answer]):
    """The processes, and what each has in hand."""

    def __init__(self, jobs: Sequence[Job], work: Callable[[Job], Answer], died: Callable[[Job, int], Answer]) -> None:
        import multiprocessing

        # Forking is cheap, and safe where no thread runs: torchvet has none. Elsewhere a new interpreter is started.
        self.context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.jobs, self.work, self.died = jobs, work, died
        self.waiting: list[list[int]] = []
        self.found: dict[int, Answer] = {}
        self.busy: dict[Connection, tuple[BaseProcess, list[int]]] = {}

    def run(self, portions: list[list[int]], size: int) -> list[Answer]:
        """The answers to all jobs, whose indexes the portions hold, by so many processes."""
        from multiprocessing.connection import wait

        self.waiting = portions[::-1]
        gc.collect()
        gc.freeze()  # what is loaded now is shared: no child's collector may write into it
        try:
            for _ in range(min(size, len(portions))):
                self._start()
            while self.busy:
                for connection in wait(list(self.busy)):
                    self._receive(connection)  # type: ignore[arg-type]
        finally:
            gc.unfreeze()
            for process, _ in self.busy.values():
                process.terminate()
            for process, _ in self.busy.values():
                process.join()
        return [self.found[index] for index in range(len(self.jobs))]

    def _start(self) -> None:
        # A pipe for each process and no queue: its end says at once that the process, and which one, is gone.
        mine, theirs = self.context.Pipe()
        # A forked child has the parent's ends too, and none would ever see that the parent is gone.
        inherited = [mine, *self.busy] if self.context.get_start_method() == "fork" else []
        process = self.context.Process(target=_serve, args=(theirs, inherited, self.work), daemon=True)
        with interrupts_blocked():
            process.start()
        theirs.close()
        self._give(mine, process)

    def _give(self, connection: Connection, process: BaseProcess) -> None:
        portion = self.waiting.pop()
        self.busy[connection] = process, portion
        try:
            connection.send([self.jobs[index] for index in portion])
        except OSError:
            pass  # it has died: receiving from it says so

    def _receive(self, connection: Connection) -> None:
        process, portion = self.busy.pop(connection)
        died = False
        try:
            self.found.update(zip(portion, connection.recv(), strict=True))
        except (EOFError, OSError):
            died = True
        if self.waiting and not died:
            self._give(connection, process)
            return
        connection.close()
        process.join()
        if died:
            # The dead process said nothing of its portion, so that all of it is open; another process takes its place.
            self._bury(portion, process.exitcode or 0)
            if self.waiting:
                self._start()

    def _bury(self, portion: list[int], status: int) -> None:
        if len(portion) == 1:
            self.found[portion[0]] = self.died(self.jobs[portion[0]], status)
        else:
            # One file of the portion ended the process: alone, each shows whether it is the one.
            self.waiting += [[index] for index in reversed(portion)]


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Ctrl-C waits meanwhile; a process started now never sees it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, inherited: Sequence[Connection], work: Callable[[Any], Any]) -> None:
    """A process's whole life: portions come, answers go, and it ends when the parent closes the pipe."""
    for other in inherited:
        other.close()
    # The collector takes part of the time of parsing; once after each portion is enough.
    gc.disable()
    while True:
        try:
            portion = connection.recv()
        except EOFError:
            return
        answers = [work(job) for job in portion]
        gc.collect()
        try:
            connection.send(answers)
        except OSError:
            return
