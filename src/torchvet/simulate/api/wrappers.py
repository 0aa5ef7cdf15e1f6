"""Classes of tensors that wrap others, jagged and distributed ones say, around tensors of a simulated device.

Each tells torch on which device it is, by the name that the wrapped tensor gives. To C++ that would be a real GPU, for
which it has no code: it ends the process. So it hears the backend's name, and who asks the tensor hears `cuda`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.late_imports import when_imported
from torchvet.simulate.refusals import refusal
from torchvet.simulate.tensors import SimulatedTensor

_make: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
_base: Any = torch._C.TensorBase
_FAKE = ("tracing with fake tensors, as torch.export does", "A trace would be of the simulated device's backend.")


def _inward(value: Any) -> Any:
    return devices.inward(value) if isinstance(value, torch.device) else value


def _make_wrapper_subclass(*args: Any, **kwargs: Any) -> Any:
    # The device may stand anywhere among the arguments.
    return _make(*[_inward(value) for value in args], **{name: _inward(value) for name, value in kwargs.items()})


def _device(self: torch.Tensor) -> torch.device:
    device: torch.device = _base.device.__get__(self)
    # Also for the wrapper of a wrapper.
    return devices.outer(device.index) if device.type == devices.BACKEND else device


def _is_cuda(self: torch.Tensor) -> bool:
    return bool(_base.is_cuda.__get__(self)) or _base.device.__get__(self).type == devices.BACKEND


def _in_fake_tensors(module: Any) -> None:
    mode = module.FakeTensorMode
    take: Callable[..., Any] = mode.from_tensor

    def from_tensor(self: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, SimulatedTensor):
            raise refusal(*_FAKE)
        return take(self, tensor, *args, **kwargs)

    mode.from_tensor = from_tensor


def install() -> None:
    """Stand between such classes and C++."""
    tensor: Any = torch.Tensor
    tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    tensor.device, tensor.is_cuda = property(_device), property(_is_cuda)
    # What meshes and process groups take for the device type of this machine.
    torch._C._get_accelerator = lambda *_: torch.device("cuda")
    when_imported("torch._subclasses.fake_tensor", _in_fake_tensors)
