"""The interpreter's clock for tracebacks (`faulthandler.dump_traceback_later`), as long as the program does not use it.

It runs without the interpreter's lock, so that it sees what keeps that lock. A forked child would wait at its end for
the clock's thread, which it does not have (CPython 3.11, measured): the clock stands still while the process forks.
"""

from __future__ import annotations

import _thread
import faulthandler
import os
from typing import Any

_PATIENCE = 1.0
_current: StallClock | None = None
_forks_heard = False
"""Whether forks are heard of: what is registered for that stays for the life of the process."""


class StallClock:
    """The clock, which is not ours before `begin()`, nor after `leave()` or the program's own use of it."""

    def __init__(self) -> None:
        self.ours = False
        self._armed = False
        self._lock = _thread.allocate_lock()
        """Held while the clock is set."""
        self._forking = False
        self._later = faulthandler.dump_traceback_later

    def begin(self) -> None:
        """Take the clock, until the program asks for it."""
        global _current, _forks_heard
        self.ours, _current = True, self
        faulthandler.dump_traceback_later = self._asked
        if not _forks_heard and hasattr(os, "register_at_fork"):
            _forks_heard = True
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)

    def arm(self, seconds: float, file: Any) -> None:
        """Have tracebacks written to the file after so many seconds, in place of what was asked for before."""
        if self.ours and not self._forking and self._lock.acquire(False):
            try:
                if not self._forking:
                    self._later(seconds, file=file)
                    self._armed = True
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Nothing is to be written."""
        locked = self._lock.acquire(True, _PATIENCE)  # not forever: in a forked child its owner may not exist
        if self._armed:
            faulthandler.cancel_dump_traceback_later()
            self._armed = False
        if locked:
            self._lock.release()

    def leave(self) -> None:
        """The clock is ours no longer."""
        self.stop()
        self._give_back()

    def _give_back(self) -> None:
        self.ours = False
        if faulthandler.dump_traceback_later == self._asked:
            faulthandler.dump_traceback_later = self._later

    def _asked(self, *arguments: Any, **more: Any) -> None:
        """The program wants tracebacks itself."""
        self.leave()
        self._later(*arguments, **more)

    def before_fork(self) -> None:
        """The process is about to fork."""
        self._forking = True
        self.stop()

    def after_fork(self) -> None:
        """It has."""
        self._forking = False

    def in_child(self) -> None:
        """This is the child."""
        self._lock, self._forking = _thread.allocate_lock(), False
        self._give_back()


def _before_fork() -> None:
    if _current is not None:
        _current.before_fork()


def _after_fork() -> None:
    if _current is not None:
        _current.after_fork()


def _in_child() -> None:
    if _current is not None:
        _current.in_child()
