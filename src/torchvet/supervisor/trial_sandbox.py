"""Runs a trial of a program and restores the user's files afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from torchvet.errors import BadInput
from torchvet.formatting import count
from torchvet.supervisor.signal_forwarding import run_relayed
from torchvet.undo.effects import noted
from torchvet.undo.folders import SLACK, Held, left_behind, new_folder
from torchvet.undo.rollback import Undone, roll_back
from torchvet.undo.written import written_files

if TYPE_CHECKING:
    from pathlib import Path

    from torchvet.recording.records.training import Outcome
    from torchvet.supervisor.progress import Progress

_PATIENCE = 8.0
"""Seconds that are waited for forked processes to end: a DataLoader's workers take five to see that they are alone."""
_TOLD = 5
"""Paths that are named in a message."""
_ENDING = [s for n in ("SIGINT", "SIGTERM", "SIGHUP") if (s := getattr(signal, n, None))]


@dataclass(frozen=True)
class Shown:
    """Whether the program's output is shown, and whether torchvet is quiet about what it does."""

    output: bool
    quiet: bool

    def streams(self) -> dict[str, Any]:
        """Where a process's output goes."""
        stream = sys.stderr.fileno() if self.output else subprocess.DEVNULL
        return {"stdin": None, "stdout": stream, "stderr": None if self.output else stream}

    def progress(self, directory: Path, trial: str) -> Progress:
        """What a terminal shows while a trial runs that is recorded in `directory`."""
        from torchvet.supervisor.progress import Progress

        return Progress(directory, sys.stderr, wanted=not self.quiet, trial=trial, in_place=not self.output)


class Untouched:
    """One trial. Its process logs its changes of the disk in `folder`; they are undone at the end, however it ends.

    At the start, changes are undone that an earlier trial left because it was killed with its supervisor. At the end,
    raises KeyboardInterrupt if the user stopped the trial, and `BadInput` if the trial was stopped because no copy of
    a file could be kept before a change. With `reads`, what it has written is read before that is undone.
    """

    def __init__(self, quiet: bool = False, reads: bool = False) -> None:
        self.quiet, self._reads = quiet, reads
        self._held: Held | None = None
        self._passed: list[int] = []
        self._useful = False
        self._interrupted = False
        self.outside: list[str] = []
        """What the trial did beyond its files, which is not undone."""
        self.written: dict[str, str | bytes] = {}
        """The files that it wrote, with their contents."""

    @property
    def folder(self) -> Any:
        """Where the trial is to note what it changes."""
        assert self._held is not None
        return self._held.folder

    def __enter__(self) -> Untouched:
        # First: this trial would note as original what an earlier one has left changed.
        for held, last in left_behind():
            _finish_other(held, last)
        try:
            self._held = new_folder()
        except OSError as error:
            raise BadInput(
                "changes that the program makes on the disk could not be undone: the log for them cannot be written: "
                f"{error.filename or 'the folder for state'}: {error.strerror}; set XDG_STATE_HOME to another folder"
            ) from error
        return self

    def run(
        self, command: Sequence[str], limit: float | None = None, progress: Progress | None = None, **streams: Any
    ) -> tuple[int, float]:
        """The program's status (-N where signal N killed it) and seconds; it is killed after `limit` seconds."""
        started = time.monotonic()
        running: list[subprocess.Popen[bytes]] = []

        def start(prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
            streams.setdefault("stdin", subprocess.DEVNULL)
            # Inheritable descriptors are the program's, as without us; torchvet's own are not
            # inheritable.
            running.append(subprocess.Popen(command, close_fds=False, preexec_fn=prepare, **streams))
            return running[0]

        def tick() -> None:
            self.beat()
            if progress is not None:
                progress.tick()
            if limit is not None and time.monotonic() - started > limit:
                # A program may ignore every other signal; what it changed is undone in any case.
                running[0].send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

        try:
            status = run_relayed(start, tick, self._passed)
        finally:
            if progress is not None:
                progress.clear()
        return status, time.monotonic() - started

    def beat(self) -> None:
        """Say twice a second that the trial goes on, where it is not `run` that does."""
        assert self._held is not None
        self._held.beat()

    def ended(self, outcome: Outcome, stops: bool = True) -> None:
        """How the trial ended. Files that it downloaded are kept if it trained with them, or ended well.

        If `stops`, an interrupt of the trial ends torchvet too.
        """
        self._useful = outcome.ticks > 0 or outcome.status == 0
        self._interrupted = stops and outcome.how == "interrupt"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._held is not None
        with _undisturbed():
            # First: what forked processes change after the rollback is not undone.
            ended = self._held.wait(_PATIENCE)
            self.outside = noted(self._held.folder)
            with suppress(OSError):
                self.written = written_files(self._held.folder) if self._reads else {}
            undone = _finish(self._held, self._useful)
        if not ended:
            running = "processes started by the program are still running; their further changes will not be undone"
            click.echo(f"torchvet: {running}", err=True)
        if undone.stay and not self.quiet:
            click.echo(f"torchvet: downloaded files are kept: {_names(_tops(undone.stay))}", err=True)
        # An error of torchvet's own is said first.
        if kind is not None:
            return
        if self._interrupted:
            raise KeyboardInterrupt
        ending = [number for number in self._passed if number in _ENDING]
        if ending:
            raise click.exceptions.Exit(-ending[0])
        if undone.refused is not None:
            raise BadInput(
                f"{undone.refused.path}: no copy could be kept before the program changed it ({undone.refused.why}). "
                "The program was stopped and its changes were undone. Let it write elsewhere, or set XDG_STATE_HOME to "
                "a folder with room"
            )


def _finish(held: Held, keep_fetched: bool, until: float | None = None) -> Undone:
    """Undo a trial and remove its folder; where something could not be put back, say where it lies."""
    try:
        undone = roll_back(held.folder, keep_fetched, until)
    except OSError as error:
        click.echo(f"torchvet: {held.settle()}: the log of a trial's changes cannot be read: {error}", err=True)
        return Undone()
    if undone.unheard:
        made = f"a trial created {_names(undone.unheard)}, and wrote there in a way that torchvet cannot observe"
        click.echo(f"torchvet: {made}: its contents are kept (docs/fix.md)", err=True)
    if undone.trouble:
        folder = held.settle()
        for path, why in undone.trouble[:_TOLD]:
            click.echo(f"torchvet: {path}: changed by a trial and not restored: {why}", err=True)
        rest = len(undone.trouble) - _TOLD
        # The folder stays: it has what could not be put back.
        more = f"{count(rest, 'more path')} not restored; " if rest > 0 else ""
        click.echo(f"torchvet: {more}{folder} has the original files, listed in its log.jsonl", err=True)
    else:
        held.close()
    return undone


def _finish_other(held: Held, last: float) -> None:
    """Undo a trial whose supervisor was killed."""
    with _undisturbed():
        held.wait(_PATIENCE)
        # Changes after its last sign of life are not the trial's.
        undone = _finish(held, False, last + SLACK)
    if undone.restored:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last))
        told = count(undone.restored, "change")
        click.echo(f"torchvet: a trial was killed at {when}; {told} undone now", err=True)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that end this process wait, where they can be told to."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _tops(paths: Sequence[str]) -> list[str]:
    """The paths that lie in no other of them."""
    tops: list[str] = []
    # Sorted, so that a folder comes before what lies in it.
    for path in sorted(paths):
        if not any(path.startswith(top + os.sep) for top in tops):
            tops.append(path)
    return tops


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(os.path.relpath(path) for path in paths[:_TOLD]) + more
