"""Hears, by Python's audit events, what the program is about to do to files, and has it noted first.

Every audit event of the process passes here: one look into a table decides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from torchvet.undo.effects import Effects
from torchvet.undo.journal import How, Notes
from torchvet.undo.places import is_nobodys

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Hearing:
    """What audit events mean for the files of a trial, and beyond them if `effects` are noted."""

    def __init__(self, notes: Notes, effects: Effects | None = None) -> None:
        self.notes = notes
        # Positions in `told` are those of Python's table of audit events.
        self.table: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._opened,
            "os.truncate": lambda told: self.changing(told[0]),
            "os.remove": lambda told: self._entry(told[0], told[1], "removal"),
            "os.rmdir": lambda told: self._entry(told[0], told[1], "removal"),
            "os.mkdir": lambda told: self._entry(told[0], told[2], "content"),
            "os.symlink": lambda told: self._entry(told[1], told[2], "content"),
            "os.rename": self._renamed,
            "os.link": self._linked,
            "os.chmod": lambda told: self.changing(told[0], "attributes", told[2]),
            "os.chown": lambda told: self.changing(told[0], "attributes", told[3]),
            "os.utime": lambda told: self.changing(told[0], "attributes", told[3]),
            "sqlite3.connect": self._connected,
            **(effects.table if effects is not None else {}),
        }

    def install(self) -> None:
        """From now on, for the life of the process: audit hooks cannot be taken out again."""
        find = self.table.get

        def hear(event: str, told: tuple[Any, ...]) -> None:
            handle = find(event)
            if handle is not None:
                handle(told)

        sys.addaudithook(hear)

    def changing(self, path: Any, how: How = "content", folder: Any = None) -> None:
        """Before the file that a path leads to is changed. What is no path is an open file, and was heard of."""
        text = self._text(path, folder)
        if text is not None and not is_nobodys(text):  # /dev/stdout leads to a file
            self.notes.touch(os.path.realpath(text), how)

    def _opened(self, told: tuple[Any, ...]) -> None:
        flags = told[2]
        # A descriptor was heard of when it was opened.
        if not flags & _WRITING or isinstance(told[0], int):
            return
        if flags & os.O_EXCL and flags & os.O_CREAT and os.path.lexists(told[0]):
            return  # it will fail
        # Of what is only added to, the length is enough to undo it.
        self.changing(told[0], "growth" if flags & os.O_APPEND and not flags & os.O_TRUNC else "content")

    def _entry(self, path: Any, folder: Any, how: How) -> None:
        """Before a name is made or goes: a link itself, not what it leads to."""
        key = self._key(path, folder)
        if key is not None:
            self.notes.touch(key, how)

    def _renamed(self, told: tuple[Any, ...]) -> None:
        source, target = self._key(told[0], told[2]), self._key(told[1], told[3])
        if source is not None and target is not None:
            self.notes.moved(source, target)

    def _linked(self, told: tuple[Any, ...]) -> None:
        """A second name: whoever writes to it writes to the first as well."""
        target = self._key(told[1], told[3])
        if target is not None and not self.notes.is_own(target):
            self._entry(told[0], told[2], "move")
            self.notes.touch(target, "content")

    def _connected(self, told: tuple[Any, ...]) -> None:
        name = os.fsdecode(told[0]) if isinstance(told[0], (str, bytes, os.PathLike)) else ""
        if name.startswith("file:"):
            name, _, asked = name[5:].partition("?")
            name = unquote(name[name.find("/", 2) :] if name.startswith("//") else name)
            if "mode=ro" in asked or "mode=memory" in asked or "immutable=1" in asked:
                return
        if name and name != ":memory:":
            # SQLite opens its files in C, which raises no audit event: the database is noted with its companions by
            # name.
            for ending in ("", "-journal", "-wal", "-shm"):
                self.changing(name + ending)

    def _key(self, path: Any, folder: Any) -> str | None:
        text = self._text(path, folder)
        if text is None:
            return None
        # Only the folders are resolved: the last name may be a link, and the call is about the link itself.
        above, name = os.path.split(os.path.abspath(text) if text.endswith(("/", os.sep, ".")) else text)
        return os.path.join(os.path.realpath(above), name)

    def _text(self, path: Any, folder: Any) -> str | None:
        """A path as text, None for an open file. `folder` is the descriptor of the one it is relative to."""
        if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
            return None
        text = os.fsdecode(path)
        if not isinstance(folder, int) or folder < 0 or os.path.isabs(text):
            return text
        return os.path.join(self._folder(folder, text), text)

    def _folder(self, descriptor: int, name: str) -> str:
        try:
            if sys.platform == "darwin":
                import fcntl

                return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
            return os.readlink(f"/proc/self/fd/{descriptor}")
        except (OSError, ImportError):
            self.notes.refuse(name, "it is named by an open folder, and this system does not say which")
