"""What autograd writes in place for plain tensors, and never for a class of its own, as simulated ones are.

Gradients that reach a tensor on several ways are added up in the first one's memory, where nobody else has it
(`accumulate` in `torch/csrc/autograd/input_buffer.cpp`); gradients of what selects are scattered into fresh zeros
(`areAnyTensorSubclassLike` in `torch/csrc/autograd/FunctionsManual.cpp`). Here only the block goes over; the numbers of
the first operand stay as they are. Hooks and Functions written in Python run within a backward pass too: what they ask
for is computed as anywhere, as they may hold what they add up.
"""

from __future__ import annotations

import sys
import weakref
from types import CodeType
from typing import Any

import torch

from torchvet.simulate.allocation import memory
from torchvet.simulate.operations.operators import SPECIAL, Kernel, compute, host_of, on_host
from torchvet.simulate.tensors import SimulatedTensor, wrap

_aten = torch.ops.aten
_SCATTERING = (_aten.scatter_add.default, _aten.scatter.src, _aten.index_add.default, _aten.index_put.default)
_in_backward = torch._C._current_graph_task_id
_ENGINE: CodeType = torch.autograd.graph._engine_run_backward.__code__
_BETWEEN = ("torchvet.", "torch._ops", "torch.utils._python_dispatch")
"""Modules whose frames lie between who asks for an operator and these functions."""
_ALONE = 2
"""Counted uses of a storage that one tensor has: the tensor's own, and the object by which it is asked."""


_parts: dict[int, tuple[weakref.ref[Any], torch.Tensor, torch.Tensor]] = {}
"""By the storage of a gradient: the two that it is the sum of, where the CPU has them one after the other."""


def is_sum_of(total: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> None:
    """Let a gradient be added as the CPU adds it: each part by itself, which rounds differently."""
    storage = total.untyped_storage()
    number = storage._cdata
    _parts[number] = weakref.ref(storage, lambda _: _parts.pop(number, None)), one, other


def _added(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    parts = _parts.get(args[1].untyped_storage()._cdata) if args[1].layout is torch.strided else None
    if parts is None or parts[1].shape != args[1].shape:
        return on_host(func, args, kwargs)
    return on_host(func, [on_host(func, [args[0], parts[1]], {}), parts[2]], {})


def add(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`add.Tensor`, in the backward pass perhaps a sum of gradients."""
    if not _is_the_engines() or kwargs or len(args) != 2 or not isinstance(args[1], SimulatedTensor):
        return compute(func, args, kwargs)
    one, other = args
    # The engine adds only like to like; a broadcast is the program's.
    alike = isinstance(one, SimulatedTensor) and one.shape == other.shape and one.dtype is other.dtype
    if alike and _free(one):
        return _in_place(func, args, kwargs, _added)
    return compute(func, args, kwargs, _added if alike else None)


def scatter(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """In the backward pass perhaps the gradient of what selected; `index_put` is where it accumulates."""
    summing = func is not _aten.index_put.default or (len(args) > 3 and args[3])
    if not summing or not _is_the_engines() or not _free(args[0]):
        return compute(func, args, kwargs)
    return _in_place(func, args, kwargs)


def _is_the_engines() -> bool:
    """Whether autograd's engine asks by itself: no Python of the program's or of torch's lies between them."""
    if _in_backward() < 0:
        return False
    # Past `add` or `scatter`.
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        if frame.f_back is None:
            return True  # a thread of the engine's own
        frame = frame.f_back
    return frame.f_code is _ENGINE


def _in_place(func: Any, args: Any, kwargs: dict[str, Any], numbers: Kernel = on_host) -> Any:
    out = numbers(func, [host_of(a) for a in args], {n: host_of(a) for n, a in kwargs.items()})
    # The numbers are new, the device's block is the old one's.
    memory.hand_over(args[0].host.untyped_storage(), out.untyped_storage())
    return wrap(out, args[0].ordinal)


def _free(first: Any) -> bool:
    """Whether the engine would write into it: dense, and nobody else's."""
    if not isinstance(first, SimulatedTensor) or torch.is_grad_enabled() or first.host.layout is not torch.strided:
        return False
    host, storage = first.host, first.host.untyped_storage()
    dense = host.is_contiguous() or host.numel() * host.element_size() == storage.nbytes()
    # Private: how many refer to the storage. Without it every sum would take a block that CUDA does not.
    return dense and torch._C._storage_Use_Count(storage._cdata) <= _ALONE


def install() -> None:
    """Let such operators be done here."""
    SPECIAL[_aten.add.Tensor] = add
    SPECIAL.update(dict.fromkeys(_SCATTERING, scatter))
