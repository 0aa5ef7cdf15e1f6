"""Standard streams that are closed, full, or whose reader has gone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any


def drop_stdout() -> None:
    """Nothing more can be written to stdout: let the interpreter's last flush go nowhere instead of complaining."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def ready() -> None:
    """Have three streams that can be used. What was closed gives and takes nothing, and no other file gets its number.

    The observed program is told nothing of it: a new descriptor is not passed on.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the process's life
    if not isinstance(sys.stderr, _Messages):
        setattr(sys, "stderr", _Messages(sys.stderr))  # noqa: B010 - it is no TextIO in name


class _Messages:
    """stderr, where a message that nobody can read changes nothing: not the report, nor the exit status."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
