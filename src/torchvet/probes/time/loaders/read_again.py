"""Watches the functions that read whole members of files: the same ones, again for each item of a dataset."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from json import JSONDecoder
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import torch

from torchvet.probes.base.costs import EACH
from torchvet.probes.base.kit import After, Host, Record, around
from torchvet.probes.internals import private
from torchvet.probes.time.loaders.reads import Member, Reads
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.reading import ReadAgain

_WHAT = "what is read from files again"
_EVERY = 1.0
"""Seconds from one writing of a worker to the next."""
_MOST_FILES = 64
_LEAST_TEXT = 4096
"""Characters of a text below which parsing it takes no longer than looking would."""

_Args = tuple[Any, ...]


class WorkerReads(msgspec.Struct):
    """What a worker leaves."""

    watched: float
    calls: list[ReadAgain]


class ReadAgainProbe(TimeWatcher):
    """What is read from files again, in loaders' forked workers too."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.reads: Reads | None = None
        """None until a step has ended: what is read before is read once."""
        self._steps = 0
        """Steps that had ended by then."""
        self._until = 0
        """Those that had ended when something was read last."""
        self._file: Path | None = None
        """In a worker: where its sums go."""
        self._next = 0.0
        self._here = threading.local()

    def install(self) -> None:
        """Wrap them. All but `torch.load` are methods, or private to NumPy."""
        # Not imported here: without NumPy torch works as well.
        lib: Any = getattr(sys.modules.get("numpy"), "lib", None)
        archive = getattr(getattr(lib, "npyio", None), "NpzFile", None)
        if archive is not None:
            self.replace(archive, "__getitem__", self._reading(_of_archive))
        if hasattr(getattr(lib, "format", None), "read_array"):
            self.replace(lib.format, "read_array", self._reading(_of_array_file))
        self.replace(ZipFile, "read", self._reading(_of_zip))
        self.replace(torch, "load", self._reading(_of_torch))
        self.replace(JSONDecoder, "decode", self._reading(_of_json))
        self.replace(private.DatasetKind, "create_fetcher", self._passing)
        self.replace(private.loader_workers, "_worker_loop", self._in_worker)

    def restarted(self) -> None:
        """Steps are counted anew."""
        self.reads = None

    def totals(self, tick: int) -> Iterable[Record]:
        """Calls that have read something again."""
        reads = self.reads
        if reads is None:
            return
        # Where looking has ended early, only the steps until then count.
        until = self._until if reads.over else self.host.clock.main_steps
        for record in reads.records():
            record.steps = max(1, until - self._steps)
            yield record

    def finish(self, how: str, error: BaseException | None) -> None:
        """What workers have left."""
        for record in _joined(self.host.options.directory):
            self.host.write(record)

    def _passing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Each pass over a loader makes what asks the dataset for items."""

        @functools.wraps(original)
        def create_fetcher(*args: Any, **kwargs: Any) -> Any:
            if self.reads is not None:
                self.reads.passes += 1
            return original(*args, **kwargs)

        return create_fetcher

    def _in_worker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parent, directory = os.getpid(), self.host.options.directory

        @functools.wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):
                # Spawned workers import torch anew, and have no session.
                if os.getppid() == parent and len(_files(directory, parent)) < _MOST_FILES:
                    self._file = Path(directory, f"reads-{parent}-{os.getpid()}.json")
                    self.reads, self._next = Reads(), time.perf_counter() + _EVERY / 2
            try:
                return original(*args, **kwargs)
            finally:
                self._leave()

        return _worker_loop

    def _leave(self) -> None:
        """Write a worker's sums down: it may be ended by a signal."""
        if self._file is None or self.reads is None:
            return
        reads = self.reads
        with suppress(Exception):
            end = reads.ended if reads.over else time.perf_counter()
            self._file.write_bytes(msgspec.json.encode(WorkerReads(end - reads.began, list(reads.records()))))

    def _reading(self, member_of: Callable[..., Member | None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def before(args: _Args, kwargs: dict[str, Any]) -> tuple[_Args, After] | None:
            # A function that reads calls another one that does.
            if not self._counts() or getattr(self._here, "inside", False):
                return None
            since, member = time.thread_time(), None
            # Without a guard: what is the program's own (a path that is no path) is its function's to complain about.
            with suppress(Exception):
                member = member_of(*args, **kwargs)
            if member is None:
                return None
            self._here.inside = True
            return args, partial(self._ended, member, since, time.thread_time(), time.perf_counter())

        return lambda original: around(original, before)

    def _counts(self) -> bool:
        if self._file is None:
            if not self.host.active:
                return False
            if self.reads is None and self.host.clock.main_steps:
                self.reads, self._steps = Reads(), self.host.clock.main_steps
        return self.reads is not None and not self.reads.over

    def _ended(
        self, member: Member, since: float, paused: float, began: float, result: Any, error: BaseException | None
    ) -> None:
        self._here.inside = False
        seconds, reads = time.perf_counter() - began, self.reads
        if error is not None or reads is None:
            return
        # The program's own work in between is none of ours.
        since += time.thread_time() - paused
        if self._file is not None:
            with suppress(Exception):
                reads.add(member, _size(result, member), seconds, sys._getframe(1), since)
            if time.perf_counter() >= self._next:
                self._next = time.perf_counter() + _EVERY
                self._leave()
            return
        with self.host.looking(_WHAT, EACH):
            reads.add(member, _size(result, member), seconds, sys._getframe(1), since)
            self._until = self.host.clock.main_steps


def _size(result: Any, member: Member) -> int:
    """The bytes that keeping a result takes; those of the file where that is not known."""
    size = getattr(result, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(result, bytes):
        return len(result)
    known = member.key[-1] if isinstance(member.key, tuple) else 0
    return known if isinstance(known, int) else 0


def _of_archive(archive: Any, key: Any) -> Member | None:
    """A member of NumPy's archive. Its checksum says whether the content is the same in a file that is opened anew."""
    file = archive.zip
    info = file.NameToInfo.get(key) or file.NameToInfo.get(f"{key}.npy")
    if info is None:
        return None
    return Member("npz", (str(file.filename), info.filename, info.CRC, info.file_size), str(key))


def _of_zip(file: Any, name: Any, *_: Any, **__: Any) -> Member | None:
    info = file.getinfo(name) if isinstance(name, str) else name
    return Member("zip", (str(file.filename), info.filename, info.CRC, info.file_size), info.filename)


def _of_array_file(file: Any, *_: Any, **__: Any) -> Member | None:
    return _file_of("npy", file.name) if file.tell() == 0 else None


def _of_torch(f: Any, *_: Any, **more: Any) -> Member | None:
    # What is mapped is read where it is used.
    return None if more.get("mmap") else _file_of("torch", getattr(f, "name", f))


def _file_of(what: Any, path: Any) -> Member:
    stat = os.stat(path)
    return Member(what, (os.fspath(path), stat.st_mtime_ns, stat.st_size), os.path.basename(os.fspath(path)))


def _of_json(_: Any, text: Any, *__: Any, **___: Any) -> Member | None:
    # A string keeps its hash: to ask for it again costs nothing.
    return Member("json", (hash(text), len(text)), "") if len(text) >= _LEAST_TEXT else None


def _files(directory: str, parent: int) -> list[Path]:
    return sorted(Path(directory).glob(f"reads-{parent}-*.json"))


def _joined(directory: str) -> list[ReadAgain]:
    """What all workers of this process have left, which is taken away."""
    found: list[WorkerReads] = []
    for file in _files(directory, os.getpid()):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(file.read_bytes(), type=WorkerReads))
        with suppress(OSError):
            file.unlink()
    sums: dict[Any, ReadAgain] = {}
    for number, call in enumerate(call for one in found for call in one.calls):
        known = sums.setdefault((call.place, tuple(call.callers), call.what, call.name), call)
        if known is call:
            known.id, known.workers, known.watched = number, len(found), sum(one.watched for one in found)
            continue
        known.reads, known.again = known.reads + call.reads, known.again + call.again
        known.seconds += call.seconds
        # Workers read the same members.
        known.members, known.bytes = max(known.members, call.members), max(known.bytes, call.bytes)
    return list(sums.values())
