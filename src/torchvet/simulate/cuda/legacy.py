"""`torch.cuda.FloatTensor` and its kin: constructors and types from before tensors had a `device`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.tensors import SimulatedTensor

_DTYPES: dict[str, torch.dtype] = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool,
}  # fmt: skip


class _Type(type):
    """The type of such a constructor: a tensor is an instance where it is on a device and of the dtype."""

    dtype: torch.dtype
    layout: torch.layout
    is_cuda = True

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SimulatedTensor) and (instance.dtype, instance.layout) == (cls.dtype, cls.layout)


def _dense(cls: _Type, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Sizes, a sequence of numbers, an array or another tensor, on the current device."""
    kwargs.pop("device", None)
    where = torch.device("cuda", devices.current.index)
    if not args:
        return torch.empty(0, dtype=cls.dtype, device=where)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        # As torch's constructors: they copy and never convert.
        if args[0].dtype is not cls.dtype:
            raise TypeError(f"expected {cls.dtype} (got {args[0].dtype})")
        return args[0].to(where)
    if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
        return torch.tensor(args[0], dtype=cls.dtype, device=where)
    sizes = args[0] if isinstance(args[0], torch.Size) else args
    return torch.empty(*sizes, dtype=cls.dtype, device=where)


def _sparse(cls: _Type, *args: Any, **kwargs: Any) -> torch.Tensor:
    where = torch.device("cuda", devices.current.index)
    if args and isinstance(args[0], torch.Tensor):
        return torch.sparse_coo_tensor(*args, dtype=cls.dtype, device=where)
    return torch.sparse_coo_tensor(tuple(args), dtype=cls.dtype, device=where)  # type: ignore[arg-type, call-arg]


def _make(kind: str, module: str, construct: Callable[..., torch.Tensor], layout: torch.layout) -> _Type:
    names = {"__module__": module, "__new__": construct, "dtype": _DTYPES[kind], "layout": layout}
    return _Type(f"{kind}Tensor", (), names)


_default: list[torch.dtype] = []
"""What `set_default_tensor_type` has chosen while it is a type of the device."""


def _in_defaults() -> None:
    choose = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any, /) -> None:
        if isinstance(t, str) and t.startswith("torch.cuda."):
            t = getattr(torch.cuda, t.rpartition(".")[2])
        if isinstance(t, _Type):
            torch.set_default_dtype(t.dtype)
            torch.set_default_device("cuda")
            _default[:] = [t.dtype]
            return
        # The program goes back to a type of the host: the default device must go with it.
        if _default:
            torch.set_default_device(None)
            _default.clear()
        choose(t)

    set_default_tensor_type.__doc__ = choose.__doc__
    torch.set_default_tensor_type = set_default_tensor_type


def install() -> None:
    """Put them where programs look for them."""
    for kind in _DTYPES:
        setattr(torch.cuda, f"{kind}Tensor", _make(kind, "torch.cuda", _dense, torch.strided))
        setattr(torch.cuda.sparse, f"{kind}Tensor", _make(kind, "torch.cuda.sparse", _sparse, torch.sparse_coo))
    _in_defaults()
