"""What the memory that loaders' workers have for themselves says: copied pages of their data set, or something else."""

from __future__ import annotations

from itertools import pairwise

from torchvet.recording.records.memory import HeldObjects, WorkerMemory

_FEWEST = 4
"""Looks at the workers below which their memory is not judged."""
_WORTH, LOUD = 16 << 20, 64 << 20
"""Bytes that workers have copied from which on it is said, and from which on it is a warning. Chosen, not measured."""
_EXPLAINS = 1.5
"""Times the objects' own bytes that copied pages may have: whole pages are copied, and others lie on them."""
_GOES_ON = 0.25
"""The share of a rise that its second half has where it goes on. Chosen, not measured."""


def grown(record: WorkerMemory) -> int:
    """Bytes that workers have more than at the first look."""
    return record.private[-1] - record.private[0]


def copies(record: WorkerMemory) -> bool:
    """Whether private memory rose as it does where pages are copied: nearly always, and by no more than what is copied
    of the objects."""
    held = copied(record)
    most = _EXPLAINS * record.workers * _bytes(held) if held is not None else 0
    # All of it is copied in the end: then it rises no more.
    return _rises(record) and _WORTH <= grown(record) <= most


def copied(record: WorkerMemory) -> HeldObjects | None:
    """The objects of which most was copied."""
    return max(record.held, key=_bytes, default=None)


def _bytes(held: HeldObjects) -> float:
    """Bytes that each worker has copied of objects; all of them where the system does not say which pages it shares."""
    return held.bytes * (1.0 if held.copied is None else held.copied)


def grows_otherwise(record: WorkerMemory) -> bool:
    """Whether private memory rose by more than that, and goes on: caches that were filled once do not."""
    if not _rises(record) or copies(record) or grown(record) < LOUD:
        return False
    middle = (record.batches[0] + record.batches[-1]) / 2
    then = max(size for batch, size in zip(record.batches, record.private, strict=True) if batch <= middle)
    return record.private[-1] - then >= _GOES_ON * grown(record)


def _rises(record: WorkerMemory) -> bool:
    rises = sum(b > a for a, b in pairwise(record.private))
    return len(record.private) >= _FEWEST and rises >= (len(record.private) - 1) / 2
