"""Which tensors of a replay are computed from parameters, by floating point all the way."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch


class Lineage:
    """Parameters, and what was made of them. A count of right answers is not among it: whole numbers and comparisons
    break the line."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        self._storages: dict[int, weakref.ref[Any]] = {}
        for parameter in parameters:
            self._add(parameter)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is of it."""
        return tensor.untyped_storage()._cdata in self._storages

    def made(self, operands: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> None:
        """An operator ran."""
        if any(t.is_floating_point() and _has_storage(t) and self.holds(t) for t in operands):
            for result in results:
                # `argmax`, `>` and counts end the line: their values say nothing of the parameters'
                # soundness.
                if result.is_floating_point() and _has_storage(result):
                    self._add(result)

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        # A storage's key is used again after its death: the entry has to go with it.
        self._storages[key] = weakref.ref(storage, partial(self._forget, key))

    def _forget(self, key: int, dead: Any) -> None:
        if self._storages.get(key) is dead:
            del self._storages[key]


def _has_storage(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided
