"""Room for deep recursion: text that nests deeper than Python's limit is worked on by a thread with a large stack."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")
LIMIT = 30_000
"""Calls within one another. Rules need up to eight for a level of the tree, and Python parses up to three thousand."""
STACK = 512 * 1024 * 1024
"""Bytes of address space, of which only what is used takes memory: 17 kB for a call, some ten times the need."""


def with_room(work: Callable[[], Answer]) -> Answer | None:
    """What `work` gives where deep recursion is allowed; None where no such thread can be started."""
    found: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)

    limit, stack = sys.getrecursionlimit(), threading.stack_size()
    try:
        threading.stack_size(STACK)
        thread = threading.Thread(target=run, daemon=True)
        sys.setrecursionlimit(LIMIT)
        thread.start()
        thread.join()
    except (RuntimeError, ValueError):
        return None  # the system gives no such stack
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(stack)
    if errors:
        raise errors[0]
    return found[0]
