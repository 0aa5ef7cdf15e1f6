"""A tensor on a simulated device: a shape for autograd and the dispatcher, a CPU tensor for its numbers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory
from torchvet.simulate.refusals import asked

_NO_TORCH_FUNCTION = torch._C._disabled_torch_function_impl
_base = torch._C.TensorBase
_make: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
"""Makes `torch.autocast("cuda")` cast for these tensors: see `autocasting.py`."""


_WAITING = (
    "how long memory waits for other streams (record_stream)",
    "every operator is over when it returns: what is given back waits until memory is asked for next, on a GPU longer",
)
_dispatch: list[Callable[[Any, Any, dict[str, Any]], Any]] = []


def dispatch_to(run: Callable[[Any, Any, dict[str, Any]], Any]) -> None:
    """Let `run(func, args, kwargs)` do every operator that has a simulated tensor among its arguments."""
    _dispatch[:] = [run]


class SimulatedTensor(torch.Tensor):
    """`host` holds the numbers, its storage shared as the device's would be; `ordinal` is the device's number."""

    host: torch.Tensor
    ordinal: int

    # Calls go straight to torch: the function mode in `api/naming.py` has translated their devices already.
    __torch_function__ = _NO_TORCH_FUNCTION  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """What `type(x)(...)` makes for a program that takes `x` for a tensor of torch's own. See `of`."""
        if issubclass(cls, torch.nn.Parameter):
            return torch.nn.Parameter(*args, **kwargs)
        return torch.Tensor(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # Jagged and distributed tensors wrap these.
        if len(types) > 1 and not all(issubclass(t, SimulatedTensor) for t in types):
            return NotImplemented  # another subclass wraps tensors of a device: it goes first
        return _dispatch[0](func, args, kwargs or {})

    # What a program reads of a tensor that is on a GPU ---------------------------------------------------------------

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """`cuda:N`."""
        return devices.outer(self.ordinal)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """As on a GPU."""
        return True

    def get_device(self) -> int:
        """The device's number."""
        return self.ordinal

    def untyped_storage(self) -> torch.UntypedStorage:
        """The storage of the numbers: the same object for all views of it."""
        return self.host.untyped_storage()

    def data_ptr(self) -> int:
        """Where the numbers are; two tensors share it where they would on a GPU."""
        return self.host.data_ptr()

    @property
    def data(self) -> torch.Tensor:
        """The same tensor without its history, as torch's; what is done to it counts as no change of this one."""
        # Of the base class: this property would call itself.
        plain: torch.Tensor = _base.data.__get__(self)  # type: ignore[attr-defined]
        return plain

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        # `x.data = cpu_tensor` moves the parameter off the device.
        if not isinstance(value, SimulatedTensor):
            become(self, value)
            return
        _base.data.__set__(self, of(value.host, value.ordinal))  # type: ignore[attr-defined]
        self.host, self.ordinal = value.host, value.ordinal

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """As torch's; the name without arguments is CUDA's."""
        if dtype is None:
            return self.host.type().replace("torch.", "torch.cuda.", 1)
        return super().type(dtype, non_blocking, **kwargs)

    def tolist(self) -> Any:
        """As torch's: a copy to the host that waits for the device."""
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """As torch's."""
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )

    def pin_memory(self, device: Any = None) -> torch.Tensor:
        """Refused, as on a GPU."""
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")

    def is_pinned(self, device: Any = None) -> bool:
        """Device memory is not page-locked host memory."""
        return False

    def share_memory_(self) -> SimulatedTensor:
        """Nothing to do for memory of a GPU."""
        return self

    def is_shared(self) -> bool:
        """As on a GPU."""
        return True

    def as_subclass(self, cls: Any) -> Any:
        """As torch's: the same numbers as one of a program's own class."""
        same = self.view_as(self)
        same.__class__ = subclass_on_device(cls)
        return same

    def record_stream(self, stream: Any) -> None:
        """The tensor's memory, once given back, waits for the stream: see `CachingAllocator.free`."""
        memory.record_stream(self.host, stream.stream_id)
        asked.setdefault(*_WAITING)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        plain = self.data.requires_grad_(self.requires_grad) if isinstance(self, torch.nn.Parameter) else self
        text: str = torch._tensor_str._str(plain, tensor_contents=tensor_contents)  # type: ignore[no-untyped-call]
        name = type(plain).__name__
        if text.startswith(f"{name}("):
            # torch names the class of what is no tensor of its own, and indents by the name's length.
            text = f"tensor({text[len(name) + 1 :]}".replace("\n" + " " * len(name), "\n" + " " * len("tensor"))
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    # Copies ----------------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment."
            )
        new = wrap(copy.deepcopy(self.host, memo), self.ordinal)
        # The program's own parameter class stays.
        new.__class__ = type(self)
        # Before what it refers to, which may lead back to it.
        memo[id(self)] = new
        new.requires_grad_(self.requires_grad)
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        for name, value in self.__dict__.items():
            if name not in ("host", "ordinal"):
                new.__dict__[name] = copy.deepcopy(value, memo)
        return new


# What a program prints of a tensor's class, or asks of its name.
SimulatedTensor.__name__ = SimulatedTensor.__qualname__ = "Tensor"
SimulatedTensor.__module__ = "torch"


def _shell(cls: type[SimulatedTensor], host: torch.Tensor, index: int) -> Any:
    # A tensor with metadata alone, which autograd and the dispatcher take for one of the backend's. Conjugate and
    # negative views say so outside, too: what is written through them must reach the numbers that they view.
    options: dict[str, Any] = {"dtype": host.dtype, "layout": host.layout, "device": _inner(index)}
    if host.layout is torch.strided:
        options |= {"strides": host.stride(), "storage_offset": host.storage_offset()}
    else:
        options["dispatch_layout"] = True
    shell = _make(cls, host.size(), _extra_dispatch_keys=_AUTOCAST, **options)
    if host.is_neg():
        torch._C._set_neg(shell, True)
    if host.is_complex() and host.is_conj():
        torch._C._set_conj(shell, True)
    return shell


@functools.cache
def _inner(index: int) -> torch.device:
    return torch.device(devices.BACKEND, index)


def of(host: torch.Tensor, index: int) -> SimulatedTensor:
    """A tensor of a device whose numbers `host` holds, without accounting for its storage."""
    tensor: SimulatedTensor = _shell(SimulatedTensor, host, index)
    tensor.host, tensor.ordinal = host, index
    return tensor


def wrap(host: torch.Tensor, index: int) -> SimulatedTensor:
    """A CPU tensor as one of a device, its storage accounted for. Raises CUDA's error where the device is full."""
    memory.account(host, index)
    return of(host, index)


def numbers_of(value: Any) -> Any:
    """The CPU tensor behind a simulated one; anything else as it is."""
    return value.host if isinstance(value, SimulatedTensor) else value


def reshape_shell(tensor: SimulatedTensor) -> None:
    """After an operator that changed the shape of `host` in place: let the outside know."""
    memory.account(tensor.host, tensor.ordinal)
    # A shell's sizes cannot be changed alone: it takes over those of a new one.
    # torch's own setter copies the metadata, and counts as no change.
    _base.data.__set__(tensor, of(tensor.host, tensor.ordinal))  # type: ignore[attr-defined]


_on_device: dict[type, type] = {}


def parameter_class(cls: type) -> type:
    """The class of parameters on a device that are of the program's class `cls`."""
    if issubclass(cls, SimulatedTensor):
        return cls
    if cls not in _on_device:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "of_host": cls}
        _on_device[cls] = type(cls)(cls.__name__, (SimulatedTensor, cls), names)  # type: ignore[misc]
    return _on_device[cls]


def subclass_on_device(cls: type) -> type:
    """The class of tensors on a device that are of the program's class `cls`, which decides what its operators give."""
    if issubclass(cls, SimulatedTensor):
        return cls
    if cls is torch.Tensor:
        return SimulatedTensor
    if cls not in _on_device:
        decides = cls.__torch_function__  # type: ignore[attr-defined]
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "of_host": cls}
        made = type(cls)(cls.__name__, (cls, SimulatedTensor), names)  # type: ignore[misc]
        # torch switches it off in classes that have a dispatch of their own.
        made.__torch_function__ = classmethod(decides.__func__) if hasattr(decides, "__func__") else decides
        _on_device[cls] = made
    return _on_device[cls]


def as_parameter(data: SimulatedTensor, cls: type, requires_grad: bool) -> SimulatedTensor:
    """What `torch.nn.Parameter(data, requires_grad)` is on a device."""
    tensor: SimulatedTensor = data.data  # type: ignore[assignment]
    tensor.__class__ = parameter_class(cls)
    tensor.requires_grad_(requires_grad)
    return tensor


def become(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value` where the one is on a device and the other is not.

    The object stays, as on a GPU: what refers to it, weakly or not, its attributes and its hooks.
    """
    with torch.no_grad():
        new = value.data
        kept = {n: v for n, v in tensor.__dict__.items() if n not in ("host", "ordinal")}
        # Gradient and hooks belong to the implementation that is swapped away, so they are put back afterwards.
        gradient, hooks, after = tensor.grad, tensor._backward_hooks, tensor._post_accumulate_grad_hooks
        requires_grad = tensor.requires_grad
        if gradient is not None:
            # First: torch refuses a tensor whose gradient lies on another device.
            tensor.grad = None
            where = _inner(new.ordinal) if isinstance(new, SimulatedTensor) else new.device
            set_data(gradient, gradient.to(device=where, dtype=new.dtype))
        cls = _class_on(type(tensor), isinstance(new, SimulatedTensor))
        before = type(tensor)
        tensor.__class__, new.__class__ = cls, before
        outside = {n: new.__dict__[n] for n in ("host", "ordinal") if n in new.__dict__}
        tensor.__dict__.clear()
        tensor.__dict__.update(kept | outside)
        # Only the C++ half moves: the Python object, its identity and its weak references are the program's.
        # Private, behind `torch.utils.swap_tensors`, which would refuse tensors with weak references.
        torch._C._swap_tensor_impl(tensor, new)
        tensor.requires_grad_(requires_grad)
        tensor.grad = gradient
    if hooks:
        tensor._backward_hooks = hooks
    if after:
        tensor._post_accumulate_grad_hooks = after


def _class_on(cls: type, simulated: bool) -> type:
    """What an object of a class is after it has moved onto a device, or off it."""
    if simulated:
        return parameter_class(cls) if issubclass(cls, torch.nn.Parameter) else SimulatedTensor
    return getattr(cls, "of_host", torch.Tensor)


def set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value` for any two tensors."""
    if isinstance(tensor, SimulatedTensor) or not isinstance(value, SimulatedTensor):
        tensor.data = value
    else:
        become(tensor, value)
