"""Copies to the host that run on: into page-locked memory, with `non_blocking=True`, until the host waits.

CUDA's copies to pageable memory return only when they are complete, so those are none. `.to("cpu", non_blocking=True)`
makes page-locked memory by itself.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import torch

from torchvet.probes.base.kit import ByStorage, bare_name, tensors_within

K = TypeVar("K")
_OVERWRITING = frozenset(["copy_", "fill_", "zero_"])
_MAY_WAIT = re.compile(
    r"^_?linalg_|cholesky|^lu_|^qr$|geqrf|svd|inverse|solve|multinomial|bincount|^hist|unique|nonzero|masked_select"
)
"""Operators of the device that wait for it themselves, always or at times: after one nothing is known."""
_MOST = 64
_Range = tuple[int, int]


class Underway(Generic[K]):
    """Memory of the host that copies may not have reached yet, each with a key."""

    def __init__(self) -> None:
        self._copies: ByStorage[list[tuple[_Range, K]]] = ByStorage()

    def __bool__(self) -> bool:
        return bool(self._copies)

    def add(self, target: torch.Tensor, key: K) -> None:
        """A copy into `target` was asked for and is not waited for."""
        if target.layout is torch.strided and target.numel() and len(self._copies) < _MOST:
            # Several copies may go into parts of one buffer.
            self._copies.put(target, [*(self._copies.get(target) or ()), (_extent(target), key)])

    def arrived(self) -> None:
        """The host has waited for the device."""
        if self._copies:
            self._copies.clear()

    def read_by(self, func: Any, args: Any, on_device: bool) -> list[K]:
        """The copies whose memory an operator reads on the host; each is told once. What gives something of the device
        reads by a copy of its own, in order behind the others."""
        name = bare_name(func)
        # Too many names rather than too few: an operator that waits and is not listed would make a false
        # finding.
        if on_device and _MAY_WAIT.search(name):
            self.arrived()
        if on_device or getattr(func, "is_view", False) or name in ("detach", "alias"):
            return []
        # What is only overwritten is not read.
        given = args[1:] if name in _OVERWRITING else args
        return [key for tensor in tensors_within(given) for key in self.read(tensor)]

    def read(self, tensor: torch.Tensor) -> list[K]:
        """The copies into memory that a tensor shows."""
        copies = self._copies.get(tensor)
        if not copies or not tensor.numel():
            return []
        first, last = _extent(tensor)
        hit = [copy for copy in copies if copy[0][0] <= last and first <= copy[0][1]]
        copies[:] = [copy for copy in copies if copy not in hit]
        return [key for _, key in hit]


def _extent(tensor: torch.Tensor) -> _Range:
    """The first and the last byte that it may touch."""
    first = int(tensor.storage_offset())
    # An upper bound for strided views: two interleaved columns count as touching. That can only tell too much of
    # one buffer.
    last = first + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    size = tensor.element_size()
    return first * size, (last + 1) * size - 1
