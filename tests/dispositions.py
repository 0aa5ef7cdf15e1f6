"""What the tests' own process ignores is not ignored by the programs that they start."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_INHERITED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD")


def default_in_children() -> None:
    """A shell's `&`, `nohup` and CI start a process with signals ignored, and `exec` passes that on.

    A handler that does nothing ignores them here as before, and `exec` makes it the default again.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for name in _INHERITED:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None: ...
