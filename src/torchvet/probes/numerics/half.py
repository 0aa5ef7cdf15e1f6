"""What the probes of half precision share: which dtypes are meant, how far numbers are apart, samples of elements.

A sample is kept as positions in a storage that is held weakly, so that nothing of the program's lives longer.
"""

from __future__ import annotations

import time
import weakref
from typing import Any

import torch

from torchvet.probes.internals import private

HALF = (torch.float16, torch.bfloat16)
NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
SAMPLED = 64
"""Elements of a tensor that are looked at."""


def spacing(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance to the next larger number of `dtype` at each value; of the smallest normal number below that."""
    info = torch.finfo(dtype)
    # frexp has mantissas below 1: the power of two below a value is one less.
    exponents = torch.frexp(values.abs().double().clamp(min=info.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(values, info.eps, dtype=torch.float64), exponents)


def in_backward() -> bool:
    """Whether the autograd engine is running on this thread."""
    return bool(private.graph_task() != -1)


def indices(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The positions of the sampled elements, evenly spread, one index tensor a dimension."""
    count = min(tensor.numel(), SAMPLED)
    # Fixed positions and no random ones: the program's generators must not be drawn from.
    flat = torch.arange(count, device=tensor.device) * tensor.numel() // max(count, 1)
    return torch.unravel_index(flat, tensor.shape)


class Sample:
    """The sampled elements of a strided tensor, to be read again for as long as its storage lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.at = indices(tensor)
        self.dtype = tensor.dtype
        # Not the tensor: `total = total + x` makes a new one each time, and a weak reference to a tensor
        # hinders `swap_tensors`.
        self.storage: weakref.ref[torch.UntypedStorage] = weakref.ref(tensor.untyped_storage())
        positions = torch.full_like(self.at[0], int(tensor.storage_offset())) if self.at else None
        for index, stride in zip(self.at, tensor.stride(), strict=True):
            assert positions is not None
            positions = positions + index * stride
        # A tensor without dimensions has no index.
        self._positions = positions if positions is not None else torch.tensor([tensor.storage_offset()], device="cpu")

    def read(self) -> torch.Tensor | None:
        """The elements as they are now; None once the storage is gone."""
        storage = self.storage()
        if storage is None or not storage.nbytes():
            return None
        flat = torch.empty(0, dtype=self.dtype, device=storage.device)
        # A flat tensor over the storage, since the one that was sampled may be gone.
        flat.set_(storage, 0, (storage.nbytes() // flat.element_size(),), (1,))
        return flat[self._positions]

    def of(self, other: Any, like: torch.Tensor) -> torch.Tensor:
        """The elements of another operand, broadcast to the tensor's shape, as float64."""
        if not isinstance(other, torch.Tensor):
            return torch.full(self._positions.shape, float(other), dtype=torch.float64, device="cpu")
        if not self.at:
            return other.detach().reshape(1).double()
        return other.detach().expand(like.shape)[self.at].double()


class Allowance:
    """Seconds of this thread's work that looking may take: some at once, and a share of the time since."""

    def __init__(self, seconds: float, share: float) -> None:
        self._seconds = seconds
        self._share = share
        self._started = time.perf_counter()
        self._spent = 0.0

    def left(self) -> bool:
        """Whether there is any."""
        return self._spent < self._seconds + self._share * (time.perf_counter() - self._started)

    def spend(self, since: float) -> None:
        """Account for the work since a reading of `time.thread_time`."""
        # The thread's CPU time: other programs on a busy machine do not use the allowance up.
        self._spent += time.thread_time() - since
