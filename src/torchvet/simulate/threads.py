"""Modes belong to a thread: what is to be in force in all of them is begun in each."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_every_thread(enter: Callable[[], None]) -> None:
    """Call `enter` here, and first thing in every thread that Python starts from now on."""
    enter()
    bootstrap: Callable[[threading.Thread], None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    # Not `run`, which programs override: every thread passes here.
    def _bootstrap_inner(self: threading.Thread) -> None:
        enter()
        # Private to `threading`: without it modes would be on in this thread alone.
        bootstrap(self)

    threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]
