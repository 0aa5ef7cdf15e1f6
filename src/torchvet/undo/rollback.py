"""Puts back what a trial has changed, by its log. Done again from the beginning it comes to the same."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchvet.undo.entries import Entry, entries, file_id, look


@dataclass
class Undone:
    """What came of it: how many paths were as before again, new things that `stay`, paths that could not be put back,
    each with why, folders that the trial made and something that was not heard lies in, and what the trial was stopped
    for."""

    restored: int = 0
    stay: list[str] = field(default_factory=list)
    trouble: list[tuple[str, str]] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    refused: Entry | None = None


def roll_back(folder: Path, keep_fetched: bool = True, until: float | None = None) -> Undone:
    """Undo what the log in a trial's folder tells. `keep_fetched` leaves what downloads brought.

    What has changed later than `until` (seconds since the epoch) has been changed by others, and is left alone. Raises
    OSError where the log cannot be read; a path that cannot be put back does not hinder the others.
    """
    return _Rollback(folder, keep_fetched, until).run()


class _Rollback:
    def __init__(self, folder: Path, keep_fetched: bool, until: float | None) -> None:
        self.folder, self.keep_fetched, self.until = folder, keep_fetched, until
        self.first: dict[str, Entry] = {}
        self.copies: dict[str, Entry] = {}
        self.grown: dict[str, Entry] = {}
        self.undone = Undone()
        self._cached: set[str] = set()
        for entry in entries(folder):
            if entry.kind == "refused":
                self.undone.refused = self.undone.refused or entry
                continue
            # The first entry of a path is what lay there before the trial.
            if self.first.setdefault(entry.path, entry).stays == "cached":
                self._cached.add(entry.path)
            if entry.grows:
                self.grown.setdefault(entry.path, entry)
            # A copy takes a link's place: the same file was changed later, and the link shows the change.
            before = self.copies.get(entry.path)
            if entry.copy and (before is None or (before.linked and not entry.linked and before.file == entry.file)):
                self.copies[entry.path] = entry

    def run(self) -> Undone:
        """Names first: what is in the way goes, folders come back; then what they hold; then the folders' times."""
        down = sorted(self.first.values(), key=lambda e: e.path.count(os.sep))
        folders = [e for e in down if e.kind == "folder"]
        # Before anything is cleared: nothing can be removed from a read-only folder.
        self._each(folders, self._open_folder)
        # Deepest first, so that a folder is empty when its own turn comes.
        self._each(reversed(down), self._clear)
        self._each(folders, _make_folder)
        self._each(down, self._fill)
        full = {os.path.dirname(path) for path in (*self.undone.stay, *self.undone.unheard)}
        # Deepest first: a folder that has its permissions back may let nobody reach what lies in it.
        self._each(reversed(folders), lambda folder: _finish_folder(folder, times=folder.path not in full))
        return self.undone

    def _each(self, entries: Iterable[Entry], restore: Callable[[Entry], object]) -> None:
        """Go on after what cannot be restored: as much as possible comes back."""
        for entry in entries:
            try:
                restore(entry)
            except OSError as error:
                told = [path for path, _ in self.undone.trouble]
                if entry.path not in told:
                    self.undone.trouble.append((entry.path, error.strerror or str(error)))

    def _open_folder(self, entry: Entry) -> None:
        """Let things be put into a folder; take away what lies in its place."""
        now = look(entry.path)
        if now is not None and not stat.S_ISDIR(now.st_mode):
            self._check_time(now)
            os.unlink(entry.path)
        elif now is not None and stat.S_IMODE(now.st_mode) != entry.mode:
            # Writable for now, though it may have been read-only: `_finish_folder` sets what it had.
            os.chmod(entry.path, entry.mode | 0o700)

    def _clear(self, entry: Entry) -> None:
        """Take away what was not there, or was of another kind."""
        now = look(entry.path)
        if now is None or os.path.realpath(os.path.dirname(entry.path)) != os.path.dirname(entry.path):
            return  # by way of a link it would be another's
        kind = _kind(now)
        if entry.kind == "folder" or (entry.kind != "absent" and kind == entry.kind):
            return
        if entry.kind == "absent" and (entry.stays == "cached" or (entry.stays and self.keep_fetched)):
            if entry.stays == "fetched":
                self.undone.stay.append(entry.path)
        elif kind != "folder":
            self._check_time(now)
            os.unlink(entry.path)
            self.undone.restored += 1
        else:
            self._remove_folder(entry)

    def _remove_folder(self, entry: Entry) -> None:
        # The trial may have left it unreadable.
        os.chmod(entry.path, 0o700)
        left = [path for name in os.listdir(entry.path) if not _unplugged(path := os.path.join(entry.path, name))]
        if not left:
            os.rmdir(entry.path)
            self.undone.restored += 1
        elif set(left) - {*self.undone.stay, *self.undone.unheard, *self._cached}:
            self.undone.unheard.append(entry.path)
        else:
            (self.undone.unheard if set(left) & set(self.undone.unheard) else self.undone.stay).append(entry.path)

    def _check_time(self, now: os.stat_result) -> None:
        if self.until is not None and now.st_mtime > self.until:
            raise OSError("it has been changed since")

    def _fill(self, entry: Entry) -> None:
        if entry.kind == "link":
            self._link(entry)
        elif entry.kind == "file":
            self._file(entry, self.copies.get(entry.path))

    def _link(self, entry: Entry) -> None:
        now = look(entry.path)
        if now is not None and os.readlink(entry.path) == entry.target:
            return
        if now is not None:
            self._check_time(now)
            os.unlink(entry.path)
        os.symlink(entry.target, entry.path)
        with contextlib.suppress(OSError, NotImplementedError):
            os.utime(entry.path, ns=(entry.mtime, entry.mtime), follow_symlinks=False)
        self.undone.restored += 1

    def _file(self, entry: Entry, copied: Entry | None) -> None:
        now = look(entry.path)
        if now is not None and _is_unchanged(entry, now):
            return
        if now is not None:
            self._check_time(now)
        if copied is None:
            _shorten(entry, now, self.grown.get(entry.path))
        else:
            self._content(entry, self.folder / copied.copy, now)
        _attributes(entry)
        self.undone.restored += 1

    def _content(self, entry: Entry, copy: Path, now: os.stat_result | None) -> None:
        """The file itself where it is still to be had, put back or written over; else a new one, put in place whole."""
        os.makedirs(os.path.dirname(entry.path), exist_ok=True)
        try:
            kept = copy.stat()
        except FileNotFoundError:
            if now is not None and file_id(now) == entry.file and now.st_size == entry.size:
                return  # put back before, by a rollback that was cut off
            raise
        if file_id(kept) == entry.file and kept.st_size == entry.size:
            if now is not None:
                os.unlink(entry.path)
            # The very file: it keeps its number.
            os.rename(copy, entry.path)
        elif now is not None and file_id(now) == entry.file:
            # Written over and not replaced, so that the file's other names still lead to it.
            os.chmod(entry.path, stat.S_IMODE(now.st_mode) | stat.S_IWUSR)
            with open(copy, "rb") as source, open(entry.path, "rb+") as sink:
                _transfer(source, sink, entry.size)
                sink.truncate(entry.size)
        else:
            handle, fresh = tempfile.mkstemp(prefix=".torchvet-", dir=os.path.dirname(entry.path))
            try:
                with open(copy, "rb") as source, open(handle, "wb") as sink:
                    _transfer(source, sink, entry.size)
                os.replace(fresh, entry.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
                raise


def _kind(seen: os.stat_result) -> str:
    if stat.S_ISDIR(seen.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(seen.st_mode) else "file"


def _is_unchanged(entry: Entry, now: os.stat_result) -> bool:
    """Whether nothing has happened to a file: its time of change can be set back, that of its status cannot."""
    before = (entry.file, entry.size, entry.mode, entry.mtime, entry.ctime)
    return before == (file_id(now), now.st_size, stat.S_IMODE(now.st_mode), now.st_mtime_ns, now.st_ctime_ns)


def _unplugged(path: str) -> bool:
    """Whether a path in a folder that the trial made was a socket or a pipe, which is gone now: it held nothing."""
    kind = stat.S_IFMT(os.lstat(path).st_mode)
    if kind not in (stat.S_IFSOCK, stat.S_IFIFO):
        return False
    os.unlink(path)
    return True


def _make_folder(entry: Entry) -> None:
    if look(entry.path) is None:
        os.makedirs(entry.path)


def _finish_folder(entry: Entry, times: bool) -> None:
    now = _permissions(entry)
    if times and not entry.mode & stat.S_ISVTX:  # a folder that all share changes anyway
        with contextlib.suppress(PermissionError):
            os.utime(entry.path, ns=(now.st_atime_ns, entry.mtime))


def _shorten(entry: Entry, now: os.stat_result | None, grown: Entry | None) -> None:
    """Take away what was added to a file's end, where any was to be."""
    added = now.st_size - entry.size if now is not None and file_id(now) == entry.file else -1
    if now is None or added < 0 or (added > 0 and not grown):
        raise OSError("it was changed by something else, or in a way that cannot be heard")
    if added > 0:
        os.chmod(entry.path, stat.S_IMODE(now.st_mode) | stat.S_IWUSR)
        os.truncate(entry.path, entry.size)


def _attributes(entry: Entry) -> None:
    now = _permissions(entry)
    if now.st_mtime_ns != entry.mtime:
        os.utime(entry.path, ns=(now.st_atime_ns, entry.mtime))


def _permissions(entry: Entry) -> os.stat_result:
    """Give a path its owner and permissions back."""
    now = os.lstat(entry.path)
    if (now.st_uid, now.st_gid) != entry.owner:
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(entry.path, *entry.owner)
    if stat.S_IMODE(now.st_mode) != entry.mode:
        os.chmod(entry.path, entry.mode)
    return now


def _transfer(source: object, sink: object, size: int) -> None:
    """Copy the first bytes of one open file into another."""
    left = size
    while left > 0:
        piece = source.read(min(left, 2**20))  # type: ignore[attr-defined]
        if not piece:
            break
        sink.write(piece)  # type: ignore[attr-defined]
        left -= len(piece)
