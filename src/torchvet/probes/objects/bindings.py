"""Is a name still bound to what it was bound to at the last look? Told without keeping anything alive.

An address tells little: what is made anew in each step often gets the place of what was freed a step before, and a
tensor that is taken for a lasting one claims graphs that it shares with others. So weak references bear witness: to the
object itself where it can have one, to a tensor's storage (a tensor with weak references cannot be swapped with
another, by `torch.utils.swap_tensors`), and to the first things that a plain container holds.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from torchvet.probes.base import graphs
from torchvet.probes.objects import heap

Witness = weakref.ReferenceType[Any]

# A few agree by chance only where the same things live on; asking all would cost as much as the walk.
_ITEMS = 8
"""Things in one container that bear witness for it."""
_OBJECTS = 64
"""Objects that are asked about one name at most."""


class Binding:
    """What a name is bound to, remembered by its address and by weak references."""

    __slots__ = ("_address", "_others", "_storages")

    def __init__(self, value: Any) -> None:
        # Another slice of one storage is another tensor, wherever it is.
        # Ask a weak reference of a tensor, and `swap_tensors` refuses it: storages bear witness instead.
        self._address = (id(value), value.storage_offset() if type(value) is torch.Tensor and _is_plain(value) else 0)
        self._storages: list[Witness] = []
        self._others: list[Witness] = []
        self._ask([value])

    def lasts(self, before: Binding | None) -> bool:
        """Whether this is the object that another look found under the name; its witnesses are to be alive still.

        Of a container the storages of its tensors decide: what else it holds may be its part by accident (a model, a
        function). One that was empty goes by its address alone.
        """
        if before is None or before._address != self._address:
            return False
        # Tensors first: of a list of batches a shared transform lasts, while each tensor is new.
        if before._storages:
            return _agree(before._storages, self._storages)
        return not before._others or _agree(before._others, self._others)

    def _ask(self, queue: list[Any]) -> None:
        for asked, one in enumerate(queue):
            kind = heap.kind_of(type(one))
            # A deep or endless value must take no time.
            if asked >= _OBJECTS:
                return
            if kind == heap.TENSOR:
                self._storages += [weakref.ref(storage) for storage in graphs.storages_of(one)]
            elif kind != heap.ATOM:
                try:
                    self._others.append(weakref.ref(one))
                except TypeError:  # plain containers have no weak references
                    # The queue grows while it is gone through: breadth first.
                    queue += _first_items(one)


Bindings = Mapping[tuple[str, str], Binding]
"""By scope and name."""


def _first_items(one: Any) -> list[Any]:
    """Some of what an object holds, the same ones while it grows."""
    if isinstance(one, list):
        # By the base class: a subclass may have code of its own. The first items of a list stay while it
        # grows.
        return list.__getitem__(one, slice(_ITEMS))
    if isinstance(one, tuple):
        return list(tuple.__getitem__(one, slice(_ITEMS)))
    return gc.get_referents(one)[:_ITEMS]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _agree(before: list[Witness], now: list[Witness]) -> bool:
    """Whether any of them is the same living thing in the same place."""
    pairs = ((a(), b()) for a, b in zip(before, now, strict=False))
    return any(a is not None and a is b for a, b in pairs)
