"""Tensors handed to other libraries and taken from them: DLPack. What they hold is on the host all the same."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.tensors import SimulatedTensor, wrap

_capsules: dict[int, tuple[Any, torch.Tensor, int]] = {}
"""Capsules of tensors on a device that this process has made and not yet read, by identity."""
_real_to = torch._C._to_dlpack


def to_dlpack(tensor: torch.Tensor) -> Any:
    """A capsule of the tensor's numbers."""
    if not isinstance(tensor, SimulatedTensor):
        return _real_to(tensor)
    capsule = _real_to(tensor.host)
    # The capsule is kept too, so that no later object has its identity.
    _capsules[id(capsule)] = (capsule, tensor.host, tensor.ordinal)
    return capsule


def _taken_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same memory, on the device that it came from."""
    source = args[0]
    if isinstance(source, SimulatedTensor):
        return source.detach()
    # A capsule can be read once.
    known = _capsules.pop(id(source), None)
    if known is not None:
        return wrap(known[1].detach(), known[2])
    return func(*args, **kwargs)


def asarray(obj: Any, **kwargs: Any) -> torch.Tensor:
    """As torch's, which takes capsules too."""
    return _own_asarray(from_dlpack(obj) if id(obj) in _capsules else obj, **kwargs)


_own_asarray = torch.asarray


def install() -> None:
    """Put them where programs look for them."""
    asarray.__doc__ = _own_asarray.__doc__
    torch.asarray = asarray
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = to_dlpack  # type: ignore[attr-defined, assignment]
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack  # type: ignore[attr-defined]


_own = torch.from_dlpack  # type: ignore[attr-defined]


def from_dlpack(ext_tensor: Any, **kwargs: Any) -> torch.Tensor:
    """As torch's: the same memory, on the device that it came from."""
    found: torch.Tensor = _taken_by(_own, (ext_tensor,), kwargs)
    return found
