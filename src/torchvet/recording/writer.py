"""Writes a recording: a directory with a manifest and one append-only JSON Lines file per rank."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from torchvet._version import __version__
from torchvet.recording.records.base import Record
from torchvet.recording.records.training import Unchecked

FORMAT, MANIFEST, CLAIM = "torchvet.recording/1", "manifest.json", ".manifest-"
_REPLACED = 4096
"""Lines that may be replaced by the last ones on a full disk."""
_HIGHEST, _OURS = 1024, 32
"""Below which number, by how many, files are kept out of a program's way."""
MOST_CHILDREN = 64
"""Processes that a program starts and that are observed: a search by many short ones must not fill the disk."""


class Manifest(msgspec.Struct, kw_only=True):
    """What a recording directory says of itself."""

    format: str = FORMAT
    version: str = __version__
    launch: str = ""
    """What tells the launcher whose ranks share this recording from others; empty where no launcher did."""


def claim(directory: Path, launch: str = "") -> bool:
    """Make a folder a recording. Whether it was none before: of several processes that try, one has made it one."""
    manifest = directory / MANIFEST
    if manifest.exists():
        return False
    # Written beside, then linked: a link fails where the manifest exists, so exactly one of several processes
    # makes the recording.
    handle, beside = tempfile.mkstemp(prefix=CLAIM, dir=directory)
    try:
        with os.fdopen(handle, "wb") as stream:
            # `mkstemp` lets only the owner read.
            os.fchmod(handle, 0o644)
            stream.write(msgspec.json.encode(Manifest(launch=launch)))
        try:
            os.link(beside, manifest)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            os.replace(beside, manifest)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)
    return True


class RecordingWriter:
    """Appends records to `directory/rank{N}.jsonl` (a child's to `rank{N}.child{M}.jsonl`), each line handed to the
    system at once.

    A process that is killed loses the line being written at most. Raises OSError where the directory cannot be made
    or written. Safe to call from several threads; a forked child's writes are dropped.
    """

    def __init__(self, directory: Path, rank: int = 0, child: bool = False) -> None:
        """`child` for a process that the observed one has started: it gets the next free file beside that one's. Where
        there are too many it shares the last, and is `crowded`."""
        directory = directory.absolute()  # the program may change its working directory
        directory.mkdir(parents=True, exist_ok=True)
        claim(directory)
        self.path, file, self.crowded = (
            _open_free(directory, rank) if child else (*_open(directory / f"rank{rank}.jsonl"), False)
        )
        self._lines = _Lines(self.path, file, self.crowded)
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.failed: OSError | None = None

    def write(self, record: Record) -> None:
        """Append one record. A full disk does not stop the program: the first error is kept in `failed`."""
        if self.failed is not None or os.getpid() != self._pid:
            return
        line = self._line(record)
        try:
            with self._lock:
                self._lines.add(line)
        except OSError as error:
            self.failed = error

    def write_last(self, *records: Record) -> None:
        """Append how the program ended. Where the disk is full, the newest records make room for it, and for a word
        that they are missing."""
        if self.failed is None:
            for record in records:
                self.write(record)
        if self.failed is None or self._closed or os.getpid() != self._pid:
            return
        reason = f"they could not be written: {self.failed.strerror or self.failed}"
        lost = Unchecked(check="the rest of the recording", reason=reason, failed="everything")
        with self._lock, suppress(OSError):
            self._lines.replace_newest([self._line(record) for record in (lost, *records)])

    def close(self) -> None:
        """Close the file; further writes are dropped."""
        if not self._closed:
            self.failed = self.failed or OSError("the recording is closed")
            self._lines.close()

    @property
    def _closed(self) -> bool:
        return self._lines.file is None

    def _line(self, record: Record) -> bytes:
        try:
            return self._encoder.encode(record) + b"\n"
        except UnicodeEncodeError:
            # Names and messages can hold what is not text (undecodable file names): written with escapes instead.
            return self._encoder.encode(_escaped(msgspec.to_builtins(record, enc_hook=str))) + b"\n"


class _Lines:
    """A file that is written line by line, each of them whole or not at all. A `shared` one is others' as well."""

    def __init__(self, path: Path, file: int, shared: bool) -> None:
        self.file: int | None = out_of_the_way(file)
        self._path, self._shared = path, shared
        self._size = 0
        self._starts: deque[int] = deque(maxlen=_REPLACED)
        self._id = _id(self.file)

    def add(self, line: bytes) -> None:
        """Append a line. Raises OSError; nothing of the line is left then."""
        file = self._own()
        if self._shared:
            os.write(file, line)
            return
        try:
            # One write for the whole line, past Python's buffers: a killed process leaves it whole or not at all.
            _write(file, line, self._size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, self._size)
            raise
        self._starts.append(self._size)
        self._size += len(line)

    def replace_newest(self, lines: list[bytes]) -> None:
        """Append lines, or write them over as many of the newest as it takes, but for the first: what is in the file
        already has its room on the disk. Raises OSError, and leaves the others as they are then."""
        text = b"".join(lines)
        try:
            self.add(text)
        except OSError:
            starts = [start for start in self._starts if start > 0 and self._size - start >= len(text)]
            if self._shared or not starts:
                raise
            file, end = self._own(), starts[-1] + len(text)
            _write(file, text, starts[-1])
            os.ftruncate(file, end)
            self._size = end

    def close(self) -> None:
        """Close it, if it is still this file."""
        with suppress(OSError):
            os.close(self._own())
        self.file = None

    def _own(self) -> int:
        """The open file. A program that closes every file it finds, as daemons do, has closed this one as well, and its
        number may be that of a file of the program's now. Raises OSError."""
        with suppress(OSError):
            if self.file is not None and _id(self.file) == self._id:
                return self.file
        self.file = out_of_the_way(os.open(self._path, os.O_WRONLY | os.O_CLOEXEC))
        if _id(self.file) != self._id:
            os.close(self.file)
            raise FileNotFoundError(f"{self._path} is another file now")
        return self.file


def out_of_the_way(file: int) -> int:
    """The same open file under a high number: those that a program gets are as they would be without torchvet, and it
    gets none that it has closed under torchvet's hands."""
    try:
        import fcntl
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        high = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, min(most, _HIGHEST) - _OURS)
    except (ImportError, OSError, ValueError):
        return file
    os.close(file)
    return high


def _id(file: int) -> tuple[int, int]:
    seen = os.fstat(file)
    return seen.st_dev, seen.st_ino


def _write(file: int, text: bytes, position: int) -> None:
    while text:
        written = os.pwrite(file, text, position)
        text, position = text[written:], position + written


def _open(path: Path, how: int = os.O_TRUNC) -> tuple[Path, int]:
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o644)


def _open_free(directory: Path, rank: int) -> tuple[Path, int, bool]:
    for number in range(1, MOST_CHILDREN + 1):
        try:
            return *_open(directory / f"rank{rank}.child{number}.jsonl", os.O_EXCL), False
        except FileExistsError:
            continue
    return *_open(directory / f"rank{rank}.child{MOST_CHILDREN + 1}.jsonl", os.O_APPEND), True


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, (list, tuple)) else value
