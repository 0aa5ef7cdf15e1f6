"""A step's operators in a wider dtype beside their own: is what failed finite where nothing was rounded before?

Each storage that an operator reads or writes has a twin in the wider dtype, of as many elements, so that views and
writes in place need no care of their own. What has no twin yet (parameters, the batch, random draws) gets one from its
values. Masks and indices are the program's own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from torchvet.probes.base.kit import tensors_within
from torchvet.probes.internals.finite import is_finite, numeric

PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Wide:
    """The twins, by storage. They die with their storages."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._by_key: dict[int, tuple[torch.Tensor, int, weakref.ref[Any]]] = {}
        self._partly = False
        """Whether an operator could not run in the wider dtype: from there on its rounded results count."""

    def finite(self, tensors: Iterable[torch.Tensor]) -> bool | None:
        """Whether what failed is finite in the wider dtype; None where that is not known."""
        fine = all(is_finite(self._of(t)) for t in tensors if numeric(t))
        # Where some operator could not run wide, a bad value proves nothing. A good one does.
        return None if self._partly and not fine else fine

    def size(self, tensors: Iterable[torch.Tensor]) -> float | None:
        """What they are in the wider dtype: a single number itself, else the norm of all."""
        values = [self._of(t).double() for t in tensors if numeric(t)]
        if len(values) == 1 and values[0].numel() == 1:
            return float(values[0])
        size = sum(float(v.square().sum()) for v in values) ** 0.5
        return size if math.isfinite(size) else None

    def before(self, func: Any, args: Any, kwargs: Any, written: list[torch.Tensor]) -> Any:
        """Run an operator on the twins. Called before it runs: what it writes in place is gone afterwards."""
        # A second draw would be of other numbers: the twin takes the real ones.
        drawn = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        if drawn or not any(self._counts(t) for t in tensors_within([args, kwargs])):
            self._forget(written)
            return None
        try:
            return func(*self._cast(args, written), **self._cast(kwargs, written))
        except Exception:  # no kernel for it, or it refuses mixed operands
            self._partly = True
            self._forget(written)
            return None

    def after(self, result: Any, wide: Any) -> None:
        """Note the twins of what an operator gave."""
        mine, others = list(tensors_within([result])), list(tensors_within([wide]))
        # An operator may give optional results.
        if len(mine) != len(others):
            return
        for real, twin in zip(mine, others, strict=True):
            # In-place results have been written through the twin already.
            if self._counts(real) and real.untyped_storage()._cdata not in self._by_key:
                if real.shape != twin.shape:
                    self._partly = True
                    continue
                self._view(self._made(real), real).copy_(twin)

    @staticmethod
    def _counts(tensor: torch.Tensor) -> bool:
        return tensor.dtype in PLAIN and numeric(tensor)

    def _of(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        known = self._by_key.get(storage._cdata)
        # A view as another dtype (`view(torch.int16)`) has other elements: the twin is no use.
        if known is not None and known[1] == tensor.itemsize:
            return self._view(known[0], tensor)
        flat = self._made(tensor)
        whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (flat.numel(),))  # type: ignore[call-overload]
        flat.copy_(whole)
        return self._view(flat, tensor)

    def _made(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        # As many elements as the storage has, so that strides and offsets fit.
        flat = torch.zeros(storage.nbytes() // tensor.itemsize, dtype=self._dtype)
        self._by_key[key] = flat, tensor.itemsize, weakref.ref(storage, partial(self._drop, key))
        return flat

    def _drop(self, key: int, _: Any) -> None:
        self._by_key.pop(key, None)

    def _forget(self, written: Iterable[torch.Tensor]) -> None:
        for tensor in written:
            self._by_key.pop(tensor.untyped_storage()._cdata, None)

    @staticmethod
    def _view(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _cast(self, value: Any, written: list[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            if self._counts(value):
                return self._of(value)
            # Counters and masks are written once, by the operator itself.
            # The wide run must not count a second time.
            return value.clone() if any(value is one for one in written) else value
        if isinstance(value, torch.dtype):
            return self._dtype if value in PLAIN else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(v, written) for v in value)
        if isinstance(value, dict):
            return {k: self._cast(v, written) for k, v in value.items()}
        return value
