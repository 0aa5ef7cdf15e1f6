"""Watches files that are opened to be written: one that is written whole again and again, each time with more."""

from __future__ import annotations

import builtins
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from torchvet.probes.base.costs import EACH
from torchvet.probes.base.kit import After, Host, Place, Record, around, frames, outward
from torchvet.probes.internals._importlib_bootstrap_named import in_c
from torchvet.probes.numerics.half import Allowance
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.reading import WrittenAgain

_WHAT = "files that are written again"
_SECONDS, _SHARE = 0.1, 0.005
"""What looking may take: so many seconds, and a share of the time since it began. Chosen, not measured."""
_FILES, _SITES = 1024, 64
"""Files and calls that are followed."""
_CALLERS = 8

_Args = tuple[Any, ...]


class _File:
    """A file that was opened to be written, and the call that did so."""

    __slots__ = ("closed", "grew", "last", "read", "site", "total", "unread", "writes")

    def __init__(self, site: WrittenAgain) -> None:
        self.site = site
        self.writes = self.total = self.last = self.grew = self.read = 0
        """How often it was written, the bytes of all versions that are over and of the last of them, how many of these
        had more than the one before, and how many were read by the program."""
        self.closed = True
        """Whether the size of the last version is known."""
        self.unread = False
        """Whether it was written and not yet read by the program."""

    def left(self, size: int) -> None:
        """A version is over."""
        if not self.closed:
            self.closed = True
            self.grew += size > self.last
            self.total += size
            self.last = size


class WrittenAgainProbe(TimeWatcher):
    """Files that are written again, by the call that opens them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._files: dict[str, _File] = {}
        self._renamed: dict[str, str] = {}
        """By name of a file that was given it after it was written: the name under which it was."""
        self._sites: dict[Hashable, WrittenAgain] = {}
        self._allowance: Allowance | None = None

    def install(self) -> None:
        """Wrap what opens files. Libraries open theirs by Python's `open`; torch does so in C++."""
        before = io.open
        opened = in_c(around(before, self._opens), before)
        for module in (builtins, io):
            self.replace(module, "open", lambda original: opened if original is before else original)
        self.replace(torch, "save", lambda original: around(original, self._saves))
        for name in ("replace", "rename"):
            self.replace(os, name, lambda original: in_c(around(original, self._renames), original))

    def _counts(self) -> bool:
        if not self.host.active or not self.host.clock.main_steps:
            return False
        self._allowance = self._allowance or Allowance(_SECONDS, _SHARE)
        return self._allowance.left()

    def _opens(self, args: _Args, kwargs: dict[str, Any]) -> tuple[_Args, After] | None:
        mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
        writes = isinstance(mode, str) and ("w" in mode or "x" in mode)
        # What is only read matters where it was written.
        if not writes and not self._files:
            return None
        self._heard(partial(self._written if writes else self._read, args[0] if args else kwargs.get("file")))
        return None

    def _saves(self, args: _Args, kwargs: dict[str, Any]) -> tuple[_Args, After] | None:
        given = args[1] if len(args) > 1 else kwargs.get("f")
        # An open file was heard when it was opened.
        if isinstance(given, (str, os.PathLike)):
            self._heard(partial(self._written, given))
        return None

    def _renames(self, args: _Args, kwargs: dict[str, Any]) -> tuple[_Args, After] | None:
        # It may be written under one name and get another: its size is asked for before.
        if self._files and len(args) > 1:
            self._heard(partial(self._over, args[0], args[1]))
        return None

    def _heard(self, look: Callable[[], None]) -> None:
        """Look, before the call: it may empty the file."""
        if not self._counts():
            return
        with self.host.looking(_WHAT, EACH), suppress(OSError, TypeError, ValueError):
            began = time.thread_time()
            try:
                look()
            finally:
                if self._allowance is not None:
                    self._allowance.spend(began)

    def _over(self, given: Any, name: Any) -> None:
        path = _path(given)
        file = self._files.get(path)
        if file is not None:
            file.left(os.stat(given).st_size)
            self._renamed[_path(name)] = path

    def _read(self, given: Any) -> None:
        path = _path(given)
        file = self._files.get(self._renamed.get(path, path))
        # However often one version is read.
        if file is not None and file.unread:
            file.left(os.stat(given).st_size)
            file.read += 1
            file.unread = False

    def _written(self, given: Any) -> None:
        path = _path(given)
        file = self._files.get(path)
        if file is None:
            site = self._site(path) if len(self._files) < _FILES else None
            if site is None:
                return
            file = self._files[path] = _File(site)
            site.files += 1
        with suppress(OSError):
            info = os.stat(given)
            # A pipe or a terminal has no versions.
            if not stat.S_ISREG(info.st_mode):
                return
            # Opened twice by one call (`np.savetxt` empties it first): nothing was written between.
            if info.st_size:
                file.left(info.st_size)
        file.writes += file.closed
        file.closed = False
        file.unread = True

    def _site(self, path: str) -> WrittenAgain | None:
        """The call that opens a file, as it was reached; None where none of the user's lines leads to it."""
        key, lines = _way()
        site = self._sites.get(key)
        if site is None and lines and len(self._sites) < _SITES:
            place, *callers = lines
            name = os.path.basename(path)
            site = self._sites[key] = WrittenAgain(len(self._sites), place, callers, name)
        return site

    def totals(self, tick: int) -> Iterable[Record]:
        """Calls that have written files again."""
        found: dict[int, list[tuple[str, _File]]] = {}
        for path, file in list(self._files.items()):
            found.setdefault(file.site.id, []).append((path, file))
        for files in found.values():
            record = files[0][1].site
            record.writes = sum(one.writes for _, one in files)
            if record.writes > record.files:
                record.grew = sum(one.grew for _, one in files)
                record.read = sum(one.read for _, one in files)
                record.bytes, record.last_bytes = map(
                    sum, zip(*(_sizes(path, one) for path, one in files), strict=True)
                )
                yield record


def _sizes(path: str, file: _File) -> tuple[int, int]:
    """The bytes of all versions of a file, and of the last."""
    last = file.last
    if not file.closed:
        with suppress(OSError):
            last = os.stat(path).st_size
    return file.total + (0 if file.closed else last), last


def _path(given: Any) -> str:
    """A file's path; for what is none TypeError is raised."""
    path = os.fspath(given)
    return os.path.abspath(os.fsdecode(path))


def _way() -> tuple[Hashable, list[Place]]:
    """How a file's opening was reached: what tells calls apart, and the user's lines."""
    lines: list[Place] = []
    key: list[int] = []
    for one in outward(sys._getframe(1)):
        if frames.owner(one.f_code.co_filename) == frames.USER and len(lines) <= _CALLERS:
            lines.append(frames.place_of(one))
            # Numbers only: code objects would be kept alive.
            key += (id(one.f_code), one.f_lasti)
    return tuple(key), lines
