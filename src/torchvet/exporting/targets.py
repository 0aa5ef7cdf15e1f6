"""A file that is written beside its target and put in its place at once, when it is whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchvet.errors import BadInput


class Target:
    """A file to be written. Raises `BadInput` at once where it cannot be: the file beside it is made first.

    Nothing is at its place, or what was there before, until `commit`; `abandon` leaves nothing behind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = Path(os.path.realpath(path))  # a link stays a link
        self._mode = self._refused_unless_file()
        self._beside = self._place.with_name(f".torchvet-{os.urandom(6).hex()}")
        with self._told():
            # Its permissions are those that the user's umask gives to any new file.
            handle = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self.stream = open(handle, "w", encoding="utf-8", newline="")  # noqa: SIM115 (see commit, abandon)

    def is_same(self, path: Path) -> bool:
        """Whether a file is the one to be written."""
        return os.path.realpath(path) == str(self._place)

    def commit(self) -> None:
        """Put what was written in the target's place. Raises `BadInput`."""
        with self._told():
            self.stream.close()
            if self._mode is not None:
                os.chmod(self._beside, self._mode)
            os.replace(self._beside, self._place)

    def abandon(self) -> None:
        """Remove what was written; after `commit` it does nothing."""
        try:
            self.stream.close()
        except OSError:
            pass  # a full disk: what could not be flushed is not wanted any more
        self._beside.unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within it, a write that fails raises `BadInput`."""
        with self._told():
            yield

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadInput(f"{self.path}: the export could not be written: {error.strerror or error}") from error

    def _refused_unless_file(self) -> int | None:
        """The permissions of the file that is there, None where there is none. Raises `BadInput`."""
        if not self._place.parent.is_dir():
            raise BadInput(f"{self.path}: the folder {self._place.parent} does not exist; make it first")
        try:
            mode = self._place.stat().st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"{self.path}: cannot be written: {error.strerror}") from error
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no plain file"
            raise BadInput(f"{self.path}: is {kind}; give a file name for the export")
        if not os.access(self._place, os.W_OK):
            raise BadInput(f"{self.path}: no permission to write there")
        return stat.S_IMODE(mode)
