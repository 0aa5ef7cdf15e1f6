"""Opens the files of a recording, which may be a stranger's: regular files alone, within its folder, up to a size.

Without these limits a recording could have a reader wait at a pipe for ever, fill memory from a device, or quote a
private file of the reader's in a report.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from torchvet.errors import BadInput

MOST_FILE, MOST_LINE = 1 << 30, 64 << 20
"""Bytes that are read of one file, and of one line. The records of a day of training take some 30 MB."""


def opened(folder: Path, file: Path) -> BinaryIO:
    """A file of the recording in `folder`, for reading. A link may lead to another place within the folder.

    Raises OSError where the system refuses, `BadInput` for what is no regular file or lies elsewhere.
    """
    inside(folder, file)
    # Not to wait for the other end of a pipe.
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{file}: is no regular file, as those of a recording are")
    return os.fdopen(handle, "rb")


def inside(folder: Path, file: Path) -> Path:
    """The file. Raises `BadInput` if it lies outside the recording in `folder`, as by way of a link."""
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise BadInput(f"{file}: leads out of the recording, and only what lies in it is read")
    return file


def lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines, until more than `MOST_FILE` bytes are read. One longer than `MOST_LINE` comes in pieces."""
    read = 0
    while read <= MOST_FILE and (raw := stream.readline(MOST_LINE)):
        read += len(raw)
        yield raw
