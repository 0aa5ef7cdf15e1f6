"""Many files at once: a process a core reads one after the other, and only digests come back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path

import msgspec

from torchvet.errors import BadInput
from torchvet.readers.trace_facts import Note, RankTrace
from torchvet.traces.digest import digest

_decoder = msgspec.msgpack.Decoder(RankTrace)


def digests(paths: Sequence[Path], jobs: int | None = None) -> list[RankTrace]:
    """The digests of files, in order of rank. `jobs` processes, by default one a core.

    A single file that cannot be read raises `BadInput`; among several it becomes a digest with a note, unless none
    can be read.
    """
    if not paths:
        raise BadInput("no trace was given: expected one or more files of torch.profiler (.json, .json.gz)")
    workers = min(len(paths), jobs or _cores())
    if len(paths) == 1:
        return [digest(paths[0])]
    if workers == 1:
        found = [_packed(str(p)) for p in paths]
    else:
        with ProcessPoolExecutor(workers, mp_context=_context()) as pool:
            found = list(pool.map(_packed, map(str, _largest_first(paths))))
    read = [_decoder.decode(f) for f in found if isinstance(f, bytes)]
    failed = [f for f in found if isinstance(f, str)]
    if not read:
        raise BadInput(failed[0])
    read[0].notes += [Note("one of the files", reason) for reason in failed]
    return _numbered(sorted(read, key=lambda r: (r.rank if r.rank is not None else 1 << 30, r.path)))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _context() -> BaseContext:
    """Forked processes have everything imported already; where there are threads or no fork, fresh ones."""
    import threading

    forks = hasattr(os, "fork") and threading.active_count() == 1
    return get_context("fork" if forks else "spawn")


def _largest_first(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda p: -p.stat().st_size if p.exists() else 0)


def _packed(path: str) -> bytes | str:
    """One digest, packed, or the reason why there is none."""
    try:
        return msgspec.msgpack.encode(digest(Path(path)))
    except BadInput as error:
        return str(error)


def _numbered(ranks: list[RankTrace]) -> list[RankTrace]:
    """Ranks that say no number of their own, or the same one, are numbered in the order of their names."""
    numbers = [r.rank for r in ranks]
    if None in numbers or len(set(numbers)) < len(numbers):
        for number, rank in enumerate(ranks):
            rank.notes.append(Note("the rank of a file", f"{rank.path}: its rank is unknown or taken; called {number}"))
            rank.rank = number
    return ranks
