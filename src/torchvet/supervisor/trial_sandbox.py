"""Runs a trial of a program so that the user's files are afterwards what they were before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from torchvet.errors import BadInput
from torchvet.formatting import count
from torchvet.supervisor.signal_forwarding import run_relayed
from torchvet.undo.folders import SLACK, Held, left_behind, new_folder
from torchvet.undo.rollback import Undone, roll_back

if TYPE_CHECKING:
    from torchvet.recording.records.training import Outcome

_PATIENCE = 8.0
"""Seconds that are waited for forked processes to end: a DataLoader's workers take five to see that they are alone."""
_TOLD = 5
"""Paths that are named in a message."""
_ENDING = [s for n in ("SIGINT", "SIGTERM", "SIGHUP") if (s := getattr(signal, n, None))]


@dataclass(frozen=True)
class Shown:
    """Whether the program's output is let through, and whether torchvet says what it does."""

    output: bool
    quiet: bool

    def streams(self) -> dict[str, Any]:
        """Where a process's output goes."""
        stream = sys.stderr.fileno() if self.output else subprocess.DEVNULL
        return {"stdin": None, "stdout": stream, "stderr": None if self.output else stream}


class Untouched:
    """One trial. What the process that `run` starts notes in `folder` is undone at the end, however it ended; so is,
    before, what an earlier trial left that was killed together with its supervisor.

    At the end raises KeyboardInterrupt where the user stopped the trial, and `BadInput` where something could not be
    kept, so that the trial was stopped before it was changed.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._held: Held | None = None
        self._passed: list[int] = []
        self._useful = False
        self._interrupted = False

    @property
    def folder(self) -> Any:
        """Where the trial is to note what it changes."""
        assert self._held is not None
        return self._held.folder

    def __enter__(self) -> Untouched:
        for held, last in left_behind():
            _finish_other(held, last)
        try:
            self._held = new_folder()
        except OSError as error:
            raise BadInput(
                "what the program changes on the disk cannot be noted, so that it could not be put back: "
                f"{error.filename or 'the folder for state'}: {error.strerror}; XDG_STATE_HOME names another folder"
            ) from error
        return self

    def run(self, command: Sequence[str], limit: float | None = None, **streams: Any) -> tuple[int, float]:
        """The program's status (-N where signal N killed it) and seconds; it is killed after `limit` seconds."""
        started = time.monotonic()
        running: list[subprocess.Popen[bytes]] = []

        def start(prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
            running.append(subprocess.Popen(
                command, close_fds=False, preexec_fn=prepare, **{"stdin": subprocess.DEVNULL, **streams}
            ))  # fmt: skip
            return running[0]

        def tick() -> None:
            self.beat()
            if limit is not None and time.monotonic() - started > limit:
                running[0].send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

        status = run_relayed(start, tick, self._passed)
        return status, time.monotonic() - started

    def beat(self) -> None:
        """Say twice a second that the trial goes on, where it is not `run` that does."""
        assert self._held is not None
        self._held.beat()

    def ended(self, outcome: Outcome, stops: bool = True) -> None:
        """How the trial ended. What it fetched stays where it came as far as to train with it, or to its end. An
        interrupt of it `stops` torchvet."""
        self._useful = outcome.ticks > 0 or outcome.status == 0
        self._interrupted = stops and outcome.how == "interrupt"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._held is not None
        with _undisturbed():
            ended = self._held.wait(_PATIENCE)
            undone = _finish(self._held, self._useful)
        if not ended:
            click.echo("torchvet: processes that the program left go on: what they change now stays", err=True)
        if undone.stay and not self.quiet:
            click.echo(f"torchvet: what was downloaded stays: {_names(_tops(undone.stay))}", err=True)
        if kind is not None:
            return
        if self._interrupted:
            raise KeyboardInterrupt
        ending = [number for number in self._passed if number in _ENDING]
        if ending:
            raise click.exceptions.Exit(-ending[0])
        if undone.refused is not None:
            raise BadInput(
                f"{undone.refused.path}: the program was to change it, and it could not be kept "
                f"({undone.refused.why}); it was stopped before, and what it had changed was put back. Let it write "
                "elsewhere, or name a folder with room: XDG_STATE_HOME"
            )


def _finish(held: Held, keep_fetched: bool, until: float | None = None) -> Undone:
    """Undo a trial and remove its folder; where something could not be put back, say where it lies."""
    try:
        undone = roll_back(held.folder, keep_fetched, until)
    except OSError as error:
        click.echo(f"torchvet: {held.settle()}: what a trial has changed cannot be read: {error}", err=True)
        return Undone()
    if undone.unheard:
        click.echo(
            f"torchvet: a trial made {_names(undone.unheard)}, and what it left there was written in a way that "
            "cannot be heard: it stays (docs/fix.md)", err=True,
        )  # fmt: skip
    if undone.trouble:
        folder = held.settle()
        for path, why in undone.trouble[:_TOLD]:
            click.echo(f"torchvet: {path}: a trial changed it, and it was not put back: {why}", err=True)
        rest = len(undone.trouble) - _TOLD
        more = f"{count(rest, 'more path')} were not put back; " if rest > 0 else ""
        click.echo(f"torchvet: {more}{folder} holds the files as they were, log.jsonl says which is which", err=True)
    else:
        held.close()
    return undone


def _finish_other(held: Held, last: float) -> None:
    """Undo a trial whose supervisor was killed."""
    with _undisturbed():
        held.wait(_PATIENCE)
        undone = _finish(held, False, last + SLACK)
    if undone.restored:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(last))
        told = count(undone.restored, "change")
        click.echo(f"torchvet: a trial was cut off at {when}; the {told} that it left are undone now", err=True)


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
    for path in sorted(paths):
        if not any(path.startswith(top + os.sep) for top in tops):
            tops.append(path)
    return tops


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(os.path.relpath(path) for path in paths[:_TOLD]) + more
