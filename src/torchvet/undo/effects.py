"""Notes what a trial does beyond its files, which nobody can undo: programs that it starts, addresses that it talks to.

Heard by Python's audit events, as its file operations are. What a library does in C raises none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE = "effects.jsonl"
_MOST, _LONGEST = 40, 160
_HERE = ("", "::", "localhost")
"""Addresses without a host, as sockets of this machine have them."""


class Effects:
    """The notes of one trial in `folder`. `is_meant` says whether what happens now is the program's doing, and not that
    of what it runs on."""

    def __init__(self, folder: Path, is_meant: Callable[[], bool]) -> None:
        self._path = os.path.join(os.path.realpath(folder), _FILE)
        self._is_meant = is_meant
        self._told: set[str] = set()
        self.table: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "subprocess.Popen": lambda told: self._started(told[1]),
            "os.system": lambda told: self._started(told[0]),
            "os.exec": lambda told: self._started(told[1]),
            "os.posix_spawn": lambda told: self._started(told[1]),
            "socket.connect": lambda told: self._connected(told[1]),
            "socket.sendto": lambda told: self._connected(told[1]),
        }

    def _started(self, command: Any) -> None:
        words = command if isinstance(command, (list, tuple)) else [command]
        self._note(f"started `{' '.join(_text(word) for word in words)[:_LONGEST]}`")

    def _connected(self, address: Any) -> None:
        if isinstance(address, tuple) and len(address) >= 2 and _text(address[0]) not in _HERE:
            self._note(f"connected to {_text(address[0])[:_LONGEST]}:{address[1]}")

    def _note(self, what: str) -> None:
        """Write it down once. A failure here is not the program's."""
        # Cheapest first: `_is_meant` walks the stack.
        if what in self._told or len(self._told) >= _MOST or not self._is_meant():
            return
        self._told.add(what)
        with contextlib.suppress(OSError, ValueError):
            stream = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(stream, json.dumps(what).encode("ascii") + b"\n")
            finally:
                os.close(stream)


def noted(folder: Path) -> list[str]:
    """What a trial did beyond its files, each once, in order."""
    try:
        lines = (folder / _FILE).read_bytes().splitlines()
    except OSError:
        return []
    found: dict[str, None] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            found[str(json.loads(line))] = None
    return list(found)


def _text(word: Any) -> str:
    if isinstance(word, (str, bytes, os.PathLike)):
        return os.fsdecode(word)
    return str(word)
