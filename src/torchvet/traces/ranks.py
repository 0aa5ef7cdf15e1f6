"""Many files at once: a process a core reads one after the other, and only digests come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchvet.errors import BadInput
from torchvet.readers.kineto import looks_like
from torchvet.readers.trace_facts import Note, RankTrace
from torchvet.traces.digest import digest

_decoder = msgspec.msgpack.Decoder(RankTrace)


def digests(paths: Sequence[Path], jobs: int | None = None) -> list[RankTrace]:
    """The digests of files and of folders of them, in order of rank. `jobs` processes, by default one a core.

    A single file that cannot be read raises `BadInput`; among several it becomes a digest with a note, unless none
    can be read.
    """
    if not paths:
        raise BadInput("no trace was given: expected one or more files of torch.profiler (.json, .json.gz)")
    paths = [file for path in paths for file in _files(path)]
    workers = min(len(paths), jobs or _cores())
    if len(paths) == 1:  # without the machinery of processes, which takes a while to load
        return [digest(paths[0])]
    # The largest first, so that no process is left alone with it at the end.
    paths = sorted(paths, key=_size, reverse=True)
    found = [_packed(str(p)) for p in paths] if workers == 1 else _shared(paths, workers)
    read = [_unpacked(p, f) for p, f in zip(paths, found, strict=True) if isinstance(f, bytes)]
    failed = [f for f in found if isinstance(f, str)]
    if not read:
        raise BadInput(failed[0])
    read[0].notes += [Note("one of the files", reason) for reason in failed]
    return _numbered(sorted(read, key=lambda r: (r.rank if r.rank is not None else 1 << 30, r.path)))


def _files(path: Path) -> list[Path]:
    """A file itself, or the traces in a folder."""
    if not path.is_dir():
        return [path]
    found = []
    for file in sorted(path.iterdir()):
        if file.is_file() and file.suffix in (".json", ".gz"):
            with file.open("rb") as stream:
                found += [file] if looks_like(stream.read(1 << 14)) else []
    if not found:
        raise BadInput(f"{path}: no profiler trace in this folder; expected .json or .json.gz files of torch.profiler")
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _shared(paths: Sequence[Path], workers: int) -> list[bytes | str]:
    """One file a process at a time. Forked processes have everything imported; where threads run, fresh ones start."""
    import threading
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    forks = hasattr(os, "fork") and threading.active_count() == 1
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("fork" if forks else "spawn")) as pool:
            return list(pool.map(_packed, map(str, paths)))
    except (BrokenProcessPool, OSError):  # no processes here: a script without a main guard, a sandbox
        return [_packed(str(p)) for p in paths]


def _packed(path: str) -> bytes | str:
    """One digest, packed, or the reason why there is none."""
    try:
        found = digest(Path(path))
    except BadInput as error:
        return str(error)
    found.path = ""  # names of files need not be UTF-8, and messages are
    return msgspec.msgpack.encode(found)


def _unpacked(path: Path, packed: bytes) -> RankTrace:
    found = _decoder.decode(packed)
    found.path = str(path)
    return found


def _numbered(ranks: list[RankTrace]) -> list[RankTrace]:
    """Ranks that say no number of their own, or the same one, are numbered in the order of their names."""
    numbers = [r.rank for r in ranks]
    if None in numbers or len(set(numbers)) < len(numbers):
        for number, rank in enumerate(ranks):
            rank.notes.append(Note("the rank of a file", f"{rank.path}: its rank is unknown or taken; called {number}"))
            rank.rank = number
    return ranks
