"""What is known of tensors' storages, for as long as these live."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

import torch

from torchvet.probes.internals import private

T = TypeVar("T")


class ByStorage(Generic[T]):
    """A table by storage that keeps none alive.

    The key is an address, which is soon another storage's: a weak reference tells whether it is still the one that was
    noted. Entries of dead storages stay until `sweep()` or `clear()`.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], T]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, tensor: torch.Tensor, value: T) -> None:
        """Note a value for a strided tensor's storage."""
        self.keep(tensor.untyped_storage(), value)

    def keep(self, storage: torch.UntypedStorage, value: T) -> None:
        """Note a value for a storage."""
        # `_cdata` is the address of the C++ storage. Python objects for a storage are made anew at each call,
        # so `id` says nothing.
        self._known[storage._cdata] = weakref.ref(storage), value

    def get(self, tensor: Any) -> T | None:
        """The value of a tensor's storage; None where there is none, and for what is no strided tensor."""
        # Sparse tensors have no storage to ask for.
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.is_nested:
            return None
        # Neither have those that stand for others within transforms of `torch.func`.
        if private.is_functorch_wrapped(tensor):
            return None
        return self.of(tensor.untyped_storage())

    def of(self, storage: torch.UntypedStorage) -> T | None:
        """The value of a storage; None where there is none."""
        known = self._known.get(storage._cdata)
        # While the Python object lives torch hands out that same object, so identity of the referent is
        # identity of the storage.
        return known[1] if known is not None and known[0]() is storage else None

    def living(self) -> list[tuple[torch.UntypedStorage, T]]:
        """The storages that are alive, with their values."""
        found = [(ref(), value) for ref, value in self._known.values()]
        return [(storage, value) for storage, value in found if storage is not None]

    def sweep(self) -> None:
        """Forget dead storages."""
        self._known = {key: known for key, known in self._known.items() if known[0]() is not None}

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()
