"""Notes what lies at a path before a trial first changes it: its content is copied, then the log gets its line.

Runs within the program's process, in any of its threads, and in the processes that it forks or spawns: what one of them
has noted the others read in the log. Raises `Refused` where something could not be put back later, and the change that
was about to happen does not.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn

from torchvet.undo.entries import LOG, Entry, Stays, described, file_id, look, parse
from torchvet.undo.places import Caches, is_fetching, is_nobodys

How = Literal["attributes", "growth", "content", "move", "removal"]
"""What is about to happen to a path: its times or permissions change, something is added at its end, its content
changes or it is made, what lies there gets another name, or its name goes."""

SMALL = 16 * 2**20
"""Files up to so many bytes are copied also where they are only added to: the program may shorten what it has open."""
SPARE = 256 * 2**20
"""Bytes that copies of larger files leave free."""

_TOUCHED, _GROWS, _LINKED, _WHOLE, _NEW, _LEFT = range(6)
"""What is known of a path: its attributes are noted; its length too; the file has another name; all of it is noted; it
is new; it is not to be noted."""
_ENOUGH: dict[How, tuple[int, ...]] = {
    "attributes": (_TOUCHED, _GROWS, _LINKED, _WHOLE),
    "growth": (_GROWS, _WHOLE),
    "content": (_WHOLE,),
    "move": (_WHOLE,),
    "removal": (_LINKED, _WHOLE),
}
"""What must be known before something happens."""


class Refused(BaseException):
    """Something could not be kept: the trial ends here. No `Exception`, so that the program does not go on."""


class Notes:
    """The notes of one trial in `folder`. `spared` are folders that torchvet writes to itself, `at_work` those that
    the program works and lies in. Raises OSError where there is no log."""

    def __init__(self, folder: Path, spared: tuple[str, ...], at_work: tuple[str, ...]) -> None:
        self.folder = os.path.realpath(folder)
        self._spared = tuple(os.path.realpath(f) + os.sep for f in (self.folder, *spared))
        self._caches = Caches(at_work)
        self._log = os.path.join(self.folder, LOG)
        self._stream = self._open()
        self._read = 0
        self._known: dict[str, int] = {}
        self._links: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count()
        # Reentrant: a signal handler of the program may save within a save, and `refuse` writes under the lock.
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def touch(self, key: str, how: How) -> None:
        """Before something happens to what lies at a path without links in its folders. Raises `Refused`."""
        # Asked without the lock first: a program writes to the same paths again and again.
        if self._is_noted(key, how) or self._is_left(key):
            return
        with self._careful(key):
            # Another process of the trial may have noted it: a copy made now would be of changed content.
            self._catch_up()
            if not self._is_noted(key, how):
                try:
                    seen = look(key)
                except PermissionError:
                    return  # it will fail
                self._note(key, how, seen, first=key not in self._known)

    def moved(self, source: str, target: str) -> None:
        """Before a name becomes another, a folder's with all that is in it. Raises `Refused`."""
        seen = look(source)
        if seen is None:
            return
        self.touch(source, "move")
        self.touch(target, "removal")
        self._made(target)
        if stat.S_ISDIR(seen.st_mode):
            for path in _inside(source):
                self.touch(path, "move")
                self._made(target + path[len(source) :])

    def is_own(self, key: str) -> bool:
        """Whether a path is torchvet's own."""
        return key.startswith(self._spared)

    def refuse(self, path: str, why: str) -> NoReturn:
        """Stop the trial before something happens to a path. Raises `Refused`."""
        with contextlib.suppress(OSError), self._lock:
            self._write(Entry(path, "refused", why=why))
        raise Refused(f"torchvet: {path} cannot be kept as it is, so the trial ends here: {why}")

    def _made(self, key: str) -> None:
        """Before something comes to lie at a path by being renamed."""
        if key in self._known or self._is_left(key):
            return
        with self._careful(key):
            self._catch_up()
            if key not in self._known:
                self._note_new(key)

    @contextlib.contextmanager
    def _careful(self, key: str) -> Iterator[None]:
        """One thread at a time; what could not be noted is refused."""
        with self._lock:
            try:
                yield
            except OSError as error:
                self.refuse(key, error.strerror or str(error))

    def _is_noted(self, key: str, how: How) -> bool:
        state = self._known.get(key)
        if state in (_NEW, _LEFT):
            return True
        if state not in _ENOUGH[how]:
            return False
        return how not in ("move", "removal") or os.path.dirname(key) in self._known

    def _is_left(self, key: str) -> bool:
        if is_nobodys(key) or self.is_own(key):
            self._known[key] = _LEFT
            return True
        return False

    def _note(self, key: str, how: How, seen: os.stat_result | None, first: bool) -> None:
        if seen is None or self._is_in_new(key):
            # Where the folder above is missing, the call fails and makes nothing.
            if seen is not None or (how != "removal" and os.path.isdir(os.path.dirname(key))):
                self._note_new(key)
            return
        kind = stat.S_IFMT(seen.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            self._known[key] = _LEFT  # pipes, sockets, terminals
            return
        if how in ("move", "removal"):
            # The folder's times change with it. Its entry comes first, so that it is restored last.
            self._note_folder_of(key)
            if self._known.get(key) in _ENOUGH[how]:
                return
        # The file's number tells whether the name still leads to the file that was saved as a link.
        if self._links.get(key, file_id(seen)) != file_id(seen):
            self._known[key] = _WHOLE  # another file has come into the place of the one that was linked
            return
        if how in ("growth", "content") and kind == stat.S_IFREG and not os.access(key, os.W_OK):
            return  # it will fail
        self._save(key, how, seen, first)

    def _save(self, key: str, how: How, seen: os.stat_result, first: bool) -> None:
        """As much of what lies at a path as is needed to undo what is about to happen."""
        state, copy, linked = _WHOLE, "", False
        if stat.S_ISREG(seen.st_mode):
            if how == "attributes":
                state = _TOUCHED
            elif how == "growth" and seen.st_size > SMALL:
                state = _GROWS
            else:
                copy, linked = self._copy(key, seen, may_link=how == "removal" and first)
        if linked:
            state, self._links[key] = _LINKED, file_id(seen)
        self._write(described(key, seen, copy, linked, grows=state == _GROWS))
        self._known[key] = state

    def _note_new(self, key: str) -> None:
        self._note_folder_of(key)
        stays: Stays = "cached" if self._caches.hold(key) else "fetched" if is_fetching() else ""
        self._write(Entry(key, "absent", stays=stays))
        self._known[key] = _NEW

    def _note_folder_of(self, key: str) -> None:
        """The folder that a name comes into or goes from: its time changes."""
        folder = os.path.dirname(key)
        if folder != key and folder not in self._known and not self._is_in_new(folder):
            seen = look(folder)
            if seen is not None and stat.S_ISDIR(seen.st_mode) and not is_nobodys(folder + os.sep):
                self._write(described(folder, seen))
                self._known[folder] = _WHOLE

    def _is_in_new(self, key: str) -> bool:
        """Whether a folder above a path was made by the trial: so was then all that is in it."""
        above = os.path.dirname(key)
        while above != key:
            if self._known.get(above) == _NEW:
                return True
            key, above = above, os.path.dirname(above)
        return False

    def _copy(self, key: str, seen: os.stat_result, may_link: bool) -> tuple[str, bool]:
        """A file's content, in the trial's folder: the file itself where its only name goes, else a copy."""
        name = f"{os.getpid()}-{next(self._numbers)}"
        target = os.path.join(self.folder, name)
        # A file with another name can still be written to by that name, which would change what a link keeps.
        if may_link and seen.st_nlink == 1:
            try:
                # No bytes are copied: the name goes, and the file stays here.
                os.link(key, target, follow_symlinks=False)
                return name, True
            except (OSError, NotImplementedError):
                pass
        free = shutil.disk_usage(self.folder).free - (SPARE if seen.st_size > SMALL else 0)
        if seen.st_size > max(0, free):
            raise OSError(errno.ENOSPC, f"a copy takes {seen.st_size:,} bytes, and {max(0, free):,} may be used")
        with open(key, "rb") as source, open(target, "xb") as sink:
            if not _cloned(source.fileno(), sink.fileno()):
                shutil.copyfileobj(source, sink, 2**20)
        return name, False

    def _catch_up(self) -> None:
        """Read what other processes of the trial have noted."""
        if os.stat(self._log).st_size <= self._read:
            return
        with open(self._log, "rb") as log:
            log.seek(self._read)
            data = log.read()
        # Another process may be in the middle of its line: that one is read the next time.
        whole = data.rfind(b"\n") + 1
        self._read += whole
        for entry in parse(data[:whole]):
            if entry.kind != "refused":
                state = _state(entry)
                # States are ordered by how much of a path is kept, and what is kept once stays so.
                self._known[entry.path] = max(state, self._known.get(entry.path, state))
                if state == _LINKED:
                    self._links.setdefault(entry.path, entry.file)

    def _write(self, entry: Entry) -> None:
        """Append a line at once: from here on the supervisor knows of it."""
        line = entry.line()
        if not self._is_mine():
            self._stream = self._open()
        # A torn line is no entry, so the change must not happen.
        if os.write(self._stream, line) != len(line):
            raise OSError(errno.ENOSPC, "no room for the log")
        if os.fstat(self._stream).st_size == self._read + len(line):
            self._read += len(line)  # nobody else has written since

    def _is_mine(self) -> bool:
        """Whether the descriptor is still the log's: programs close what they do not know."""
        try:
            return os.path.samestat(os.fstat(self._stream), os.stat(self._log))
        except OSError:
            return False

    def _open(self) -> int:
        stream = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        _share(stream)
        return stream

    def _after_fork(self) -> None:
        """In a forked child, whose other threads are gone with what they held."""
        self._lock = threading.RLock()


def _state(entry: Entry) -> int:
    """What is known of a path by an entry."""
    if entry.kind == "file" and not entry.copy:
        return _GROWS if entry.grows else _TOUCHED
    if entry.kind == "absent":
        return _NEW
    return _LINKED if entry.linked else _WHOLE


def _inside(folder: str) -> Iterator[str]:
    """All that lies in a folder, what lies above before what lies within."""
    for above, folders, files in os.walk(folder):
        yield from (os.path.join(above, name) for name in (*folders, *files))


def _cloned(source: int, target: int) -> bool:
    """Let a file share another's blocks, where the file system can (Btrfs, XFS): it takes neither time nor room."""
    try:
        import fcntl

        fcntl.ioctl(target, 0x40049409, source)  # FICLONE
    except (ImportError, OSError):
        return False
    return True


def _share(stream: int) -> None:
    """Hold the log for as long as this process, or one forked from it, lives: the supervisor waits for that."""
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass
