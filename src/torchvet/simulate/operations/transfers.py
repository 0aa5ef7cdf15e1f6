"""Copies between host and device, and between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import pinned
from torchvet.simulate.allocation.temporaries import copy_of, held
from torchvet.simulate.operations.operators import SPECIAL, compute, landed, on_host
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, reshape_shell, wrap

_aten = torch.ops.aten


brought: list[Callable[[torch.Tensor, torch.Tensor], object]] = []
"""Called for each copy into a tensor of a device, with its source and its target."""


def to_copy(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """`_to_copy`: another dtype, layout or device."""
    (source,) = args
    asked = kwargs.get("device")
    before = source.ordinal if isinstance(source, SimulatedTensor) else None
    after = before if asked is None else devices.index_of(asked) if devices.is_simulated(asked) else None
    # Meta tensors and the like: this is no copy to the host, and nothing waits for it.
    if asked is not None and after is None and torch.device(asked).type != "cpu":
        host: torch.Tensor = on_host(func, [numbers_of(source)], kwargs)
        return host
    # On the host the copy is an ordinary one.
    options = {n: v for n, v in kwargs.items() if n not in ("device", "non_blocking", "pin_memory")}
    host = on_host(func, [numbers_of(source)], options)
    if after is None:
        _staged(source, host, before)
        return _placed(landed(host), kwargs, before is not None)
    found = wrap(host, after)
    if before is None and kwargs.get("non_blocking"):
        _converted(source, host, after)
    return found


def _placed(host: torch.Tensor, kwargs: dict[str, Any], fetched: bool) -> torch.Tensor:
    """In page-locked memory where that is asked for, or where a copy from a device is to run on: see `_to_copy` of
    `TensorConversions.cpp`."""
    runs_on = kwargs.get("non_blocking") and fetched and host.layout is torch.strided
    return pinned.remember(host) if runs_on or kwargs.get("pin_memory") else host


def _staged(source: torch.Tensor, target: torch.Tensor, index: int | None) -> None:
    """To the host: what is not laid out as its copy, or changes its dtype, is made dense on the device first
    (`copy_kernel_cuda` of `cuda/Copy.cu`)."""
    if index is not None and (source.dtype is not target.dtype or source.stride() != target.stride()):
        held(index, [copy_of(source)])


def _converted(source: torch.Tensor, target: torch.Tensor, index: int) -> None:
    """From the host: another dtype is made of it on the device, unless the program waits for the copy."""
    if source.dtype is not target.dtype:
        held(index, [source.numel() * source.element_size()])


def copy_into(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """`copy_`: the one operator whose two tensors may be anywhere."""
    target, source = args[0], args[1]
    on_host(func, [numbers_of(target), numbers_of(source)], {})
    # `non_blocking` is the third argument.
    if isinstance(target, SimulatedTensor) and not isinstance(source, SimulatedTensor) and args[2:] == (True,):
        _converted(source, target, target.ordinal)
    # A copy of the list: who hears of it may take itself off.
    for told in brought[:]:
        told(source, target)
    return target  # type: ignore[no-any-return]


def _copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """`copy_` where torch has switched dispatching to Python off, as `torch.tensor` does."""
    on_host(_aten.copy_.default, [numbers_of(target), numbers_of(source)], {})
    return target


def local_scalar(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`.item()` and all that goes through it: the host waits for one number."""
    return on_host(func, [args[0].host], {})


def _number(tensor: Any) -> Any:
    """`.item()` where torch has switched dispatching to Python off, as `torch.tensor([x])` does."""
    return on_host(_aten._local_scalar_dense.default, [tensor.host], {})


def set_source(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`set_`: the tensor takes another's storage."""
    target = args[0]
    if not isinstance(target, SimulatedTensor):
        raise RuntimeError("set_: a tensor on the host cannot take the storage of one on a GPU")
    on_host(func, [numbers_of(a) for a in args], {n: numbers_of(a) for n, a in kwargs.items()})
    reshape_shell(target)
    return target


def _lengths_on_host(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Packing and unpacking sequences: the second result says how long each is, on the host."""
    index = next(a.ordinal for a in args if isinstance(a, SimulatedTensor))
    if isinstance(args[1], SimulatedTensor):
        kind = args[1].type().rpartition(".")[2].removesuffix("Tensor")
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {args[1].dim()}D {args[1].device} {kind} "
            "tensor"
        )
    data, lengths = on_host(func, [numbers_of(a) for a in args], kwargs)
    return wrap(data, index), landed(lengths)


def _strided(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`new_empty_strided` asked for in a layout without strides, as autograd does for a leaf in such a layout."""
    return compute(func, args, {**kwargs, "layout": torch.strided})


def _layout(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.layout:
    """Asked for tensors that are not strided: see `tensors.py`."""
    return args[0].host.layout  # type: ignore[no-any-return]


def _nothing(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    return None


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    library.impl("_copy_from", _copy_from, "PrivateUse1")  # type: ignore[no-untyped-call]
    library.impl("_local_scalar_dense", _number, "PrivateUse1")  # type: ignore[no-untyped-call]
    SPECIAL[_aten._to_copy.default] = to_copy
    SPECIAL[_aten.copy_.default] = copy_into
    SPECIAL[_aten._local_scalar_dense.default] = local_scalar
    SPECIAL[_aten.record_stream.default] = _nothing
    SPECIAL[torch.ops.prim.layout.default] = _layout
    SPECIAL[_aten.new_empty_strided.default] = _strided
    SPECIAL[_aten._pack_padded_sequence.default] = _lengths_on_host
    SPECIAL[_aten._pad_packed_sequence.default] = _lengths_on_host
    for name in _aten.set_.overloads():  # type: ignore[no-untyped-call]
        SPECIAL[getattr(_aten.set_, name)] = set_source


__all__ = ["compute", "install"]
