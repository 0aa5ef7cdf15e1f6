"""The files that a trial has written, read before they are undone, so that two trials can be compared by them."""

from __future__ import annotations

import contextlib
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from torchvet.undo.entries import entries, look

_TEXT = 4 * 2**20
"""Bytes up to which a file is kept as text."""
_READ = 2**30
"""Bytes that are read of all files together."""


def written_files(folder: Path) -> dict[str, str | bytes]:
    """What the trial whose log is in `folder` has written and left, by path: text as text, of others a digest.

    Of files that cannot be read, and of those beyond what is read of all, nothing, which no digest is. Not what it has
    downloaded or cached. Raises OSError where the log cannot be read.
    """
    found: dict[str, str | bytes] = {}
    left = _READ
    for path, size in sorted(_files(folder)):
        found[path] = b""
        # The program may have made it unreadable.
        with contextlib.suppress(OSError):
            if size <= left:
                found[path] = _content(path, size)
                left -= size
    return found


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    kept = {e.path for e in entries(folder) if e.stays}
    for path in {e.path for e in entries(folder) if e.kind in ("absent", "file")} - kept:
        try:
            seen = look(path)
        except OSError:
            continue
        if seen is not None and stat.S_ISREG(seen.st_mode):
            yield path, seen.st_size


def _content(path: str, size: int) -> str | bytes:
    if size <= _TEXT:
        data = Path(path).read_bytes()
        try:
            if b"\0" not in data:
                return data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        return hashlib.blake2b(data).digest()
    with open(path, "rb") as stream:
        digest = hashlib.blake2b()
        while piece := stream.read(2**20):
            digest.update(piece)
    return digest.digest()
