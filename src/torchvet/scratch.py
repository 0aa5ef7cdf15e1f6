"""Temporary folders of torchvet's. Those of processes that were killed are removed when the next one is made.

A process holds a lock on a file in its folder, and the system takes the lock away with the process. A folder that has
such a file and that nobody holds was left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # not on this system: what a killed process has left stays
    fcntl = None  # type: ignore[assignment]

PREFIX = "torchvet-"
_HELD, _NEW = ".held", ".new"


class Scratch:
    """A folder, removed at the end. A context manager that gives its path.

    With a `name`, processes share the folder of that name among those that are temporary; whoever closes it removes it.
    Raises OSError where there is no folder to be had, or where it is another user's.
    """

    def __init__(self, name: str | None = None) -> None:
        sweep()
        self._lock: int | None = None
        if name is None:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).absolute()
            self._hold_new()
        else:
            self.path = Path(tempfile.gettempdir(), f"{PREFIX}{name}").absolute()
            self._share()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.leave()

    def leave(self) -> None:
        """Leave the folder to the others that share it."""
        if self._lock is not None:
            with contextlib.suppress(OSError):  # a program may have closed it
                os.close(self._lock)
            self._lock = None

    def _hold_new(self) -> None:
        """Hold the lock before the file has the name by which others find it."""
        if fcntl is None:
            return
        with contextlib.suppress(OSError):
            self._lock = os.open(self.path / _NEW, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.rename(self.path / _NEW, self.path / _HELD)

    def _share(self) -> None:
        """Hold the lock beside others. Who was about to remove the folder as left behind may do so in between."""
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            seen = self.path.lstat()
            if not stat.S_ISDIR(seen.st_mode) or (hasattr(os, "getuid") and seen.st_uid != os.getuid()):
                raise PermissionError(f"{self.path} is not yours")
            if fcntl is None:
                return
            try:
                self._lock = os.open(self.path / _HELD, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_SH)
                if _is_there(self._lock, self.path / _HELD):
                    return
            except FileNotFoundError:
                pass
            except OSError:  # no locks on this file system
                return
            self.leave()


def sweep() -> None:
    """Remove what killed processes of this user have left among the temporary folders."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_left(entry)


def _remove_left(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return
    lock = os.open(os.path.join(entry.path, _HELD), os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _is_there(file: int, path: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
