"""The session of a process that an observed program has started, from its first training to its end."""

from __future__ import annotations

import atexit
import contextlib
import sys
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from torchvet.probes.session import session as sessions
from torchvet.probes.session.exception_hook import (
    before_hard_exit,
    clean,
    how_ended,
    on_its_way,
)
from torchvet.probes.session.session import Options, Session
from torchvet.recording.records.training import Unwatched
from torchvet.recording.writer import RecordingWriter


def observe(config: dict[str, Any]) -> None:
    """Observe this process from now on. Raises OSError where its record cannot be written."""
    # Its hooks would call probes whose state is a copy of the parent's.
    before = sessions.session_of_parent()
    # In a fork the parent's probes are still in torch's functions.
    if before is not None and before.observer is not None:
        with contextlib.suppress(Exception):
            before.observer.forsake()
    writer = RecordingWriter(Path(config["directory"]), config["rank"], child=True)
    # The recording has as many processes as it may: this one is counted, and left alone.
    if writer.crowded:
        writer.write(Unwatched(kind="process", count=1))
        return
    # Its own argv: the parent's would name the wrong script in the report.
    options = Options(**{**config["options"], "directory": config["directory"], "argv": list(sys.argv)})
    session = Session(options, writer)
    session.start()
    _Ending(session).watch()


class _Ending:
    """Sees how the process ends: by itself, by an error, or by `os._exit`, as forked processes of `multiprocessing`
    do."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._returned = False
        """Whether the code of a process of `multiprocessing` has come to its end."""

    def watch(self) -> None:
        # Registered late, run early: before torch's and the program's own handlers tear things down.
        atexit.register(self._at_exit)
        before_hard_exit(self._at_hard_exit)
        # Called while the error is on its way: it is printed and dropped before any exit handler runs.
        Finalize(None, self._at_end_of_code, exitpriority=0)

    def _at_end_of_code(self) -> None:
        error = on_its_way()
        if error is None:
            self._returned = True
        else:
            clean(error)
            self._finish(*_how(error))

    def _at_hard_exit(self, status: int) -> None:
        self._finish("finished" if self._returned and status == 0 else "os-exit", status, None)

    def _at_exit(self) -> None:
        # The interpreter sets it for an uncaught exception before `atexit`; there is no other way to know of
        # one here.
        error = getattr(sys, "last_value", None)
        self._finish(*_how(error if isinstance(error, BaseException) else None))

    def _finish(self, how: str, status: int, error: BaseException | None) -> None:
        with contextlib.suppress(BaseException):  # also KeyboardInterrupt: the exit must go on
            self._session.finish(how, status, error)
            self._session.process_ends()


def _how(error: BaseException | None) -> tuple[str, int, BaseException | None]:
    """What an error makes of the process: how it ends, with which status, by what."""
    how, status = how_ended(error)
    return how, status, None if how == "exit" else error
