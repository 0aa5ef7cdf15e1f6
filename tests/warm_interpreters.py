"""Interpreters that start with torch imported, from one server for each worker: a short program spends most of its time
on importing it. They are what a real one is (`tests/casebook/test_casebook_warm.py`), except that torch is there before
the program asks for it: a test of just that takes `sys.executable`."""

from __future__ import annotations

import atexit
import os
import sys
from functools import cache

from casebook.warm import Warm


@cache
def _server() -> Warm | None:
    if not hasattr(os, "pidfd_open"):
        return None
    server = Warm()
    atexit.register(server.close)
    return server


def python() -> str:
    """An interpreter for `python FILE ARGS...` and `python -m MODULE ARGS...`."""
    server = _server()
    return server.interpreter if server else sys.executable


def torchvet() -> list[str]:
    """The command of torchvet, itself in a real interpreter, that observes programs in such ones."""
    server = _server()
    return server.torchvet if server else [sys.executable, "-m", "torchvet"]
