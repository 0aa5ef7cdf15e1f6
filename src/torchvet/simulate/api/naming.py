"""Translates `cuda` in what a program passes to torch. One function mode a thread sees every call of torch's API."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchvet.simulate import devices
from torchvet.simulate.allocation import pinned
from torchvet.simulate.api import generators
from torchvet.simulate.refusals import as_cuda
from torchvet.simulate.tensors import SimulatedTensor, set_data

_T = torch.Tensor
Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.to(device)`, with the device first or by name."""
    if len(args) > 1 and not isinstance(args[1], (torch.dtype, torch.Tensor)):
        args = (args[0], devices.inward(args[1]), *args[2:])
    elif len(args) > 1 and isinstance(args[1], torch.Tensor):
        other = args[1]
        args = (args[0], _inner_of(other), other.dtype, *args[2:])
    if "other" in kwargs:
        other = kwargs.pop("other")
        kwargs = {"device": _inner_of(other), "dtype": other.dtype, **kwargs}
    return func(*args, **kwargs)


def _inner_of(tensor: torch.Tensor) -> torch.device:
    return devices.inward(tensor.device)  # type: ignore[no-any-return]


def _cuda(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # `cuda(device, non_blocking)`: both by place or by name.
    tensor, *rest = args
    device = kwargs.pop("device", rest.pop(0) if rest else None)
    if device is not None and not devices.is_simulated(device):
        raise RuntimeError(f"Invalid device, must be cuda device: {device} was given")
    non_blocking = bool(kwargs.get("non_blocking", rest[0] if rest else False))
    index = devices.index_of(device)
    return tensor.to(torch.device(devices.BACKEND, index), non_blocking=non_blocking)


def _as_tensor(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`as_tensor(data, dtype, device)`: the one factory whose device may stand without its name."""
    if len(args) > 2:
        args = (*args[:2], devices.inward(args[2]), *args[3:])
    return func(*args, **kwargs)


def _may_set_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """What `module.to()` asks before it puts new data behind its parameters' objects."""
    if any(isinstance(a, SimulatedTensor) for a in args):
        # torch's own answer is about implementations, which `become` swaps.
        return args[0].layout is args[1].layout
    return func(*args, **kwargs)  # type: ignore[no-any-return]


def _ctc_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """CUDA takes lengths from the host; torch moves them only for tensors of its own."""
    args = tuple([a.tolist() if isinstance(a, torch.Tensor) and i in (2, 3) else a for i, a in enumerate(args)])
    return func(*args, **kwargs)


def _device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    """`torch.device(0)` is a GPU by its number alone."""
    made: torch.device = func(*args, **kwargs)
    return devices.outer(made.index) if args and isinstance(args[0], int) else made


def _set_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    set_data(args[0], args[1])


def _type(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.type("torch.cuda.FloatTensor")` moves and converts."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    name = f"{wanted.__module__}.{wanted.__name__}" if isinstance(wanted, type) else str(wanted)
    # `torch.cuda.FloatTensor` names a device by its class, which no `device=` argument shows.
    if name.startswith("torch.cuda."):
        plain = getattr(torch, name.rpartition(".")[2])
        return args[0].to(torch.device(devices.BACKEND, devices.current.index), plain.dtype)
    return func(*args, **kwargs)


_HANDLERS: dict[Any, Handler] = {
    _T.to: _to,
    _T.cuda: _cuda,
    _T.type: _type,
    torch.ctc_loss: _ctc_loss,
    torch.nn.functional.ctc_loss: _ctc_loss,
    torch.as_tensor: _as_tensor,
    torch.device: _device,
    torch._has_compatible_shallow_copy_type: _may_set_data,
    _T.data.__set__: _set_data,  # type: ignore[attr-defined]
}
_METHODS: dict[str, Handler] = {"to": _to, "cuda": _cuda, "type": _type}


def _handler_of(func: Any) -> Handler | None:
    handler = _HANDLERS.get(func)
    # torch hands on what stands on the class now: a wrapper, where somebody has put one around the method.
    if handler is None and func.__class__ is FunctionType:
        for name, of_method in _METHODS.items():
            if getattr(_T, name) is func:
                return of_method
    return handler


class Naming(TorchFunctionMode):
    """The mode. A call that names no device passes straight through."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = _handler_of(func)
        # Most calls name no device and no generator: they go on without a copy of their arguments.
        # First of all: this runs at every call of torch's API.
        if handler is None and not kwargs:
            try:
                return func(*args)
            except RuntimeError as error:
                _as_cuda(error)
                raise
        # A copy, since the caller's dict must stay as it is.
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None:
            kwargs["device"] = devices.inward(device)
        if kwargs.get("generator") is not None:
            generators.check(kwargs["generator"], device, args)
        # torch would look for a real GPU to pin memory with.
        # Remembered for the result below instead.
        pin = handler is None and kwargs.pop("pin_memory", False)
        try:
            out = func(*args, **kwargs) if handler is None else handler(func, args, kwargs)
        except RuntimeError as error:
            _as_cuda(error)
            raise
        # Only host memory can be pinned.
        if pin and isinstance(out, torch.Tensor) and not isinstance(out, SimulatedTensor):
            pinned.remember(out)
        return out


def _as_cuda(error: RuntimeError) -> None:
    """Put the device's name as the program knows it into torch's own refusal."""
    if error.args and isinstance(error.args[0], str) and (devices.BACKEND in error.args[0] or _OTHER in error.args[0]):
        error.args = (as_cuda(error.args[0]), *error.args[1:])


_OTHER = "PrivateUse1"
"""What C++ calls the backend."""


def enter() -> None:
    """Begin translating in this thread, for good."""
    Naming().__enter__()  # type: ignore[no-untyped-call]
    # A backward pass runs in the thread that asked for it: one thread a device is what the engine has for real ones.
    torch.autograd.set_multithreading_enabled(False)


def in_callbacks() -> None:
    """A mode is out of force while a call that it saw runs. What the program is called back with must have it again."""
    from torch.autograd import graph

    run: Callable[..., Any] = graph._engine_run_backward

    # Hooks and custom backwards of the program run in here, and name devices too.
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        # Without it `torch.zeros(1, device="cuda")` in a hook would look for a real GPU.
        with Naming():
            return run(*args, **kwargs)

    graph._engine_run_backward = torch.autograd._engine_run_backward = _engine_run_backward  # type: ignore[attr-defined]
    begin: Callable[..., None] = graph.saved_tensors_hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        begin(self, _translated(pack_hook), _translated(unpack_hook))

    graph.saved_tensors_hooks.__init__ = __init__  # type: ignore[method-assign]


def _translated(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        with Naming():
            return hook(value)

    return functools.wraps(hook)(call)


def in_default_devices() -> None:
    """`torch.set_default_device` and `with torch.device(...)` fill a device in below our mode."""
    from torch.utils._device import DeviceContext

    fill: Callable[..., Any] = DeviceContext.__torch_function__

    def __torch_function__(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Only while it fills in: the program may ask the context for its device in between.
        # The context keeps the program's name, which it may be asked for.
        named = self.device
        self.device = devices.inward(named)
        try:
            return fill(self, func, types, args, kwargs)
        finally:
            self.device = named

    DeviceContext.__torch_function__ = __torch_function__  # type: ignore[method-assign]
