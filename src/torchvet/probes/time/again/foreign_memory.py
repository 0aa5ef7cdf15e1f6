"""Memory that others than torch may write to: NumPy's, mapped files, other processes'. No version tells of it."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch

from torchvet.probes.base.kit import ByStorage

_MOST = 64 << 20
"""Bytes that are gone through in one step. Chosen, not measured."""
_SAMPLES, _SUMS = 64, 256


def is_foreign(storage: torch.UntypedStorage) -> bool:
    """Whether others than torch may write to a storage."""
    # torch resizes what it has allocated, and that only until NumPy or another process shares it.
    return not storage.resizable()


class _Known(NamedTuple):
    """What a storage held: the step in which it was seen last, the sums of its parts then (0 where it was new), and a
    few of its words."""

    step: int
    sums: int
    few: int


class ForeignMemory:
    """Marks for what storages hold: as long as a mark is the same, nobody has written there unheard.

    All words are gone through once a step: an array of which NumPy changes a few elements is another one. Within a step
    a few words are looked at.
    """

    def __init__(self) -> None:
        self._known: ByStorage[_Known] = ByStorage()
        self._unknown = itertools.count(1)
        self._step, self._left = 0, _MOST

    def mark(self, storage: torch.UntypedStorage, step: int) -> int:
        """The mark of a storage in this step."""
        if step != self._step:
            self._step, self._left = step, _MOST
            self._known.sweep()
        words = _words(storage)
        few = _hash(words[:: max(1, len(words) // _SAMPLES)])
        known = self._known.of(storage)
        sums = known.sums if known is not None else 0
        # What is seen for the first time, as a batch of a loader's workers, is mostly seen in no other step.
        if known is not None and known.step != step:
            self._left -= storage.nbytes()
            sums = _hash(_sums(words)) if self._left >= 0 else -next(self._unknown)
        self._known.keep(storage, _Known(step, sums, few))
        return hash((sums, few))


def _words(storage: torch.UntypedStorage) -> torch.Tensor:
    size = storage.nbytes()
    kind = torch.int64 if size % 8 == 0 else torch.uint8
    return torch.empty(0, dtype=kind, device="cpu").set_(storage, 0, (size // kind.itemsize,), (1,))


def _sums(words: torch.Tensor) -> torch.Tensor:
    """The sums of parts: one for all would be the same after a shuffle."""
    part = max(1, len(words) // _SUMS)
    whole = len(words) // part * part
    rest = words[whole:].sum(dtype=torch.int64).reshape(1)
    return torch.cat([words[:whole].view(-1, part).sum(1, dtype=torch.int64), rest])


def _hash(words: torch.Tensor) -> int:
    return hash(tuple(words.tolist()))
