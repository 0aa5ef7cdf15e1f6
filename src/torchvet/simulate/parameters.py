"""`torch.nn.Parameter` on a simulated device, so that it is one by its class and keeps it when it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

from torchvet.simulate.tensors import SimulatedTensor, as_parameter, parameter_class


def _in_construction() -> None:
    make: Callable[..., torch.nn.Parameter] = torch.nn.Parameter.__new__

    def __new__(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
        if isinstance(data, SimulatedTensor):
            return as_parameter(data, cls, requires_grad)
        return make(cls, data, requires_grad)

    torch.nn.Parameter.__new__ = __new__  # type: ignore[method-assign]


def _in_lazy_modules() -> None:
    """A lazy parameter becomes one of the class that it was to become."""
    fill: Callable[..., None] = UninitializedTensorMixin.materialize

    def materialize(self: Any, *args: Any, **kwargs: Any) -> None:
        cls = self.cls_to_become
        fill(self, *args, **kwargs)
        # It was materialized on a device.
        if "ordinal" in self.__dict__:
            self.__class__ = parameter_class(cls)

    UninitializedTensorMixin.materialize = materialize


def _in_scripts() -> None:
    """What a scripted module holds is not Python's to swap: it is given the moved parameter in place of the old."""
    move: Callable[..., Any] = torch.jit.RecursiveScriptModule._apply  # type: ignore[attr-defined]

    def _apply(self: Any, fn: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
        out = move(self, fn, *args, **kwargs)
        for module in self.modules():
            for name, held in list(module._parameters.items()):
                with torch.no_grad():
                    moved = None if held is None else fn(held)
                # C++ holds the parameter: swapping Python's object would not reach it.
                if moved is not None and moved.device != held.device:
                    setattr(module._c, name, torch.nn.Parameter(moved, held.requires_grad))
        return out

    torch.jit.RecursiveScriptModule._apply = _apply  # type: ignore[attr-defined, method-assign]


def install() -> None:
    """Take part where torch makes parameters."""
    _in_scripts()
    _in_construction()
    _in_lazy_modules()
