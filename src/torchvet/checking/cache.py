"""What files showed the last time, stored by their content: a file that has not changed is not read again.

One file per set of options in `.torchvet_cache`. An entry holds for a content; time of change and size stand in for it
where the time was well past when the file was read, so that a later change must have moved it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from torchvet._version import __version__
from torchvet.checking.result import FileResult

try:
    from _blake2 import blake2b  # hashlib's own, without the OpenSSL that it loads: 4 ms of the 60 that a check takes
except ImportError:
    from hashlib import blake2b

FOLDER = ".torchvet_cache"
SUM = 16
"""Bytes of a digest; one stands before the entries, so that a torn or altered file is seen to be one."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a change must show in a file's time, on the coarsest file systems."""
KEPT = 30
"""Days that an entry, or a set of options, outlives its last use."""
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is torchvet's cache; it may be removed.\n"


class Entry(msgspec.Struct, array_like=True):
    """What one file showed, encoded; empty where that was nothing. `seen` is a day, `changed` nanoseconds or 0."""

    digest: bytes
    changed: int
    size: int
    seen: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")


def digest(data: bytes) -> bytes:
    """The name of a content."""
    return bytes(blake2b(data, digest_size=SUM).digest())


class Cache:
    """The entries for one set of options, by shown path. An entry that cannot be read counts as missing."""

    def __init__(self, folder: Path, settings: str) -> None:
        key = blake2b(f"{settings}\0{_tool()}\0{os.getcwd()}".encode("utf-8", "surrogateescape"), digest_size=12)
        self.folder = folder
        self.file = folder / __version__ / f"{key.hexdigest()}.msgpack"
        self.today = int(time.time() // 86400)
        self._entries = self._read()
        self.is_new = not self._entries
        self._changed = False

    def _read(self) -> dict[str, Entry]:
        try:
            content = self.file.read_bytes()
            if digest(content[SUM:]) != content[:SUM]:
                return {}  # torn by a crash, or altered: better none than wrong entries
            return msgspec.msgpack.decode(content[SUM:], type=dict[str, Entry])
        except (OSError, msgspec.MsgspecError, ValueError):
            return {}

    def lookup(self, shown: str, status: os.stat_result) -> FileResult | None:
        """The result of a file whose time and size say that it is the same."""
        entry = self._entries.get(shown)
        if entry is None or entry.changed != status.st_mtime_ns or entry.size != status.st_size:
            return None
        return self._result(shown, entry)

    def digest_of(self, shown: str) -> bytes | None:
        """The content that the entry of a file is for."""
        entry = self._entries.get(shown)
        return entry.digest if entry is not None else None

    def confirm(self, shown: str, status: os.stat_result) -> FileResult | None:
        """The result of a file whose content has turned out to be the same; its new time is noted."""
        entry = self._entries[shown]
        result = self._result(shown, entry)
        if result is not None:
            self._store(shown, entry.digest, status, entry.result)
        return result

    def add(self, result: FileResult, content: bytes, status: os.stat_result) -> None:
        """Store what a file showed. A result with errors of torchvet is not stored: the next run may succeed."""
        if not result.not_checked:
            empty = not result.findings
            encoded = msgspec.Raw(b"\xc0") if empty else msgspec.Raw(msgspec.msgpack.encode(result))
            self._store(result.path, content, status, encoded)

    def _store(self, shown: str, content: bytes, status: os.stat_result, encoded: msgspec.Raw) -> None:
        settled = time.time_ns() - status.st_mtime_ns > SETTLED
        # A file written twice within one tick of a coarse clock keeps its time: 0 makes the next run read the content.
        changed = status.st_mtime_ns if settled else 0
        self._entries[shown] = Entry(content, changed, status.st_size, self.today, encoded)
        self._changed = True

    def _result(self, shown: str, entry: Entry) -> FileResult | None:
        # The day is noted only now and then: otherwise a check that changes nothing would write the cache each day.
        if entry.seen < self.today - KEPT // 3:
            entry.seen, self._changed = self.today, True
        if bytes(entry.result) == b"\xc0":
            return FileResult(shown)
        try:
            return msgspec.msgpack.decode(entry.result, type=FileResult)
        except (msgspec.MsgspecError, ValueError):
            del self._entries[shown]
            return None

    def save(self) -> None:
        """Write the entries down, in place of the old ones at once. A folder that cannot be written costs nothing."""
        if not self._changed:
            return
        kept = {k: e for k, e in self._entries.items() if e.seen >= self.today - KEPT}
        try:
            self._prepare()
            # Checks may run side by side: each writes a file of its own, and the last one to be put in place counts.
            beside = self.file.with_suffix(f".{os.getpid()}.tmp")
            content = msgspec.msgpack.encode(kept)
            beside.write_bytes(digest(content) + content)
            os.replace(beside, self.file)
        except (OSError, UnicodeEncodeError):
            pass

    def _prepare(self) -> None:
        """Make the folder, marked so that neither git nor a backup takes it along; remove what is long unused."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for name, text in ((".gitignore", "# Made by torchvet.\n*\n"), ("CACHEDIR.TAG", _TAG)):
            if not (self.folder / name).exists():
                (self.folder / name).write_text(text)
        for old in self.folder.glob("*/*"):
            if old != self.file and old.stat().st_mtime < time.time() - KEPT * 86400:
                old.unlink(missing_ok=True)


def _tool() -> str:
    """Python and torchvet, down to the times of the files that make up what a check says."""
    import torchvet

    files: list[str] = []
    folders = [os.path.join(os.path.dirname(torchvet.__file__), name) for name in ("rules", "source", "checking")]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif entry.name.endswith((".py", ".json")):
                    status = entry.stat()
                    files.append(f"{entry.path} {status.st_mtime_ns} {status.st_size}")
    return "\n".join([__version__, sys.version, *sorted(files)])
