"""Says when names are to be counted in the middle of an evaluation: memory rises while it goes on. What it gathers may
be gone at the next training step."""

from __future__ import annotations

from torchvet.probes.base import host
from torchvet.probes.base.kit import StepKind
from torchvet.probes.internals import device

_LARGE = 32 << 20
"""Bytes from which on what an evaluation gathers is worth a look: what is nobody's trouble in a larger program."""
_FEWEST = 8
"""Batches of an evaluation before which it says little: caches fill, libraries load."""
_STILL = 0.25
"""The least share of the rise that came in its later half, where it goes on."""
_APART = 4
"""Batches from one look to the next: two tell what one batch adds."""
_MOST = 2
"""Evaluations that are looked into."""


class Gathering:
    """Reads how much memory is in use (about 10 µs) after 1, 2, 4, 8, … batches of each evaluation."""

    def __init__(self) -> None:
        self.evaluation = 0
        """The number of the evaluation under way, counted from 1."""
        self.batches = 0
        """Of it so far; 0 outside of evaluations."""
        self._first = self._before = 0
        self._next = 0
        """The batch after which to look again."""
        self._looked = 0

    def boundary(self, kind: StepKind) -> bool:
        """A step of this kind ended: whether to count names now."""
        if kind != "evaluation":
            self.batches = self._next = 0
            return False
        self.batches += 1
        self.evaluation += self.batches == 1
        if self.batches == self._next:
            return True
        # Powers of two; after the first look there is no other but the second.
        if self.batches & (self.batches - 1) or self._next or self._looked == _MOST:
            return False
        return self._rises(_in_use())

    def _rises(self, size: int) -> bool:
        before, self._before = self._before, size
        if self.batches == 1:
            self._first = size
        if self.batches < _FEWEST or size - self._first < _LARGE or size - before < _STILL * (size - self._first):
            return False
        self._next = self.batches + _APART
        self._looked += 1
        return True


def _in_use() -> int:
    """Bytes that tensors may take: on the device where there is one; 0 where nobody tells."""
    on_device = device.memory()
    if on_device is not None:
        return on_device[0]
    return (host.heap_in_use() if host.heap_in_use is not None else host.resident()) or 0
