"""Writes a recording: a directory with a manifest and one append-only JSON Lines file per rank."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from torchvet._version import __version__
from torchvet.recording.records.base import Record

FORMAT = "torchvet.recording/1"
MOST_CHILDREN = 64
"""Processes that a program starts and that are observed: a search by many short ones must not fill the disk."""


class Manifest(msgspec.Struct, kw_only=True):
    """What a recording directory says of itself."""

    format: str = FORMAT
    version: str = __version__


class RecordingWriter:
    """Appends records to `directory/rank{N}.jsonl` (a child's to `rank{N}.child{M}.jsonl`), each line handed to the
    system at once.

    A process that is killed loses the line being written at most. Raises OSError where the directory cannot be made
    or written. Safe to call from several threads; a forked child's writes are dropped.
    """

    def __init__(self, directory: Path, rank: int = 0, child: bool = False) -> None:
        """`child` for a process that the observed one has started: it gets the next free file beside that one's. Where
        there are too many it shares the last, and is `crowded`."""
        directory.mkdir(parents=True, exist_ok=True)
        manifest = directory / "manifest.json"
        if not manifest.exists():
            manifest.write_bytes(msgspec.json.encode(Manifest()))
        self.path, self._file, self.crowded = (
            _open_free(directory, rank) if child else (*_open(directory / f"rank{rank}.jsonl"), False)
        )
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.failed: OSError | None = None

    def write(self, record: Record) -> None:
        """Append one record. A full disk does not stop the program: the first error is kept in `failed`."""
        if self.failed is not None or os.getpid() != self._pid:
            return
        try:
            line = self._encoder.encode(record) + b"\n"
        except UnicodeEncodeError:
            # Names and messages can hold what is not text (undecodable file names): written with escapes instead.
            line = self._encoder.encode(_escaped(msgspec.to_builtins(record))) + b"\n"
        try:
            # One write for the whole line, past Python's buffers: a killed process leaves it whole or not at all.
            with self._lock:
                os.write(self._file, line)
        except OSError as error:
            self.failed = error

    def close(self) -> None:
        """Close the file; further writes are dropped."""
        if self.failed is None:
            self.failed = OSError("the recording is closed")
            os.close(self._file)


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
