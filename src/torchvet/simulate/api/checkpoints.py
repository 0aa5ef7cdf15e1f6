"""`torch.save` and `torch.load`: files are what a GPU would write, and come back to the device that they name."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory
from torchvet.simulate.tensors import SimulatedTensor, wrap

_arriving: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
"""Storages that are being loaded to a device, by key: the tensors that are built on them belong there."""


def _reduce(tensor: SimulatedTensor, protocol: Any) -> Any:
    """What pickle gets: the same as for a tensor on a GPU."""
    host = tensor.host
    storage = torch.storage.TypedStorage(wrap_storage=host.untyped_storage(), dtype=host.dtype, _internal=True)  # type: ignore[no-untyped-call]
    data: Any = (
        torch._utils._rebuild_tensor_v2,
        (storage, host.storage_offset(), tuple(host.size()), host.stride(), tensor.requires_grad, OrderedDict()),
    )
    if not isinstance(tensor, torch.nn.Parameter):
        return data
    # A parameter names its data, which is pickled in the same way.
    # Pickled by this same function, as data without a class.
    plain = wrap(host, tensor.ordinal)
    return torch._utils._rebuild_parameter, (plain, tensor.requires_grad, OrderedDict())


def _tag(storage: Any) -> str | None:
    """Where a storage was, as it stands in the file."""
    index = memory.device_of(getattr(storage, "_untyped_storage", storage))
    return None if index is None else f"cuda:{index}"


def _restore(storage: Any, location: str) -> Any:
    """A storage whose file says that it was on a GPU, or whose `map_location` does."""
    if not location.startswith("cuda"):
        return None
    asked = torch.device(location).index or 0
    # torch's own words for a checkpoint of a larger machine.
    if asked >= devices.count():
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {asked} but torch.cuda.device_count() is "
            f"{devices.count()}. Please use torch.load with map_location to map your storages to an existing device."
        )
    untyped = getattr(storage, "_untyped_storage", storage)
    key = untyped._cdata
    _arriving[key] = (weakref.ref(untyped, lambda _: _arriving.pop(key, None)), devices.index_of(location))
    return storage


def install() -> None:
    """Take part in saving and loading, before torch's own way with CUDA's storages."""
    SimulatedTensor.__reduce_ex__ = _reduce  # type: ignore[assignment]
    # Packages are asked by rising priority: torch's own have 10 (CPU) and 20 (CUDA).
    torch.serialization.register_package(5, _tag, _restore)
    rebuild = torch._utils._rebuild_tensor
    load = torch.load

    def _rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> torch.Tensor:
        tensor = rebuild(storage, storage_offset, size, stride)  # type: ignore[no-untyped-call]
        known = _arriving.get(tensor.untyped_storage()._cdata)
        return tensor if known is None else wrap(tensor, known[1])

    def load_(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        # As text, which `_restore` understands; the function mode may have translated the device.
        if isinstance(map_location, torch.device) and map_location.type in (devices.BACKEND, "cuda"):
            map_location = f"cuda:{devices.index_of(map_location)}"
        return load(f, map_location, *args, **kwargs)

    load_.__name__, load_.__qualname__, load_.__doc__ = "load", "load", load.__doc__
    # All rebuild functions of checkpoints call this one by name.
    torch._utils._rebuild_tensor = _rebuild_tensor
    torch.load = load_
