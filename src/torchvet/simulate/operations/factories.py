"""Operators that make tensors out of nothing, asked for on a simulated device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory
from torchvet.simulate.api import generators
from torchvet.simulate.operations.operators import on_host, run
from torchvet.simulate.tensors import wrap


def _creators() -> Iterator[tuple[str, Any]]:
    """Every operator of aten that has a `device` and takes no tensor, with its qualified name."""
    for qualified in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = qualified.partition("::")
        if namespace != "aten":
            continue
        name, _, overload = rest.partition(".")
        try:
            func = getattr(getattr(torch.ops.aten, name), overload or "default")
        except AttributeError:
            continue
        schema = func._schema
        # A device argument without a tensor to take it from.
        if [str(r.type) for r in schema.returns] != ["Tensor"] or not any(a.name == "device" for a in schema.arguments):
            continue
        if not any("Tensor" in str(a.type) for a in schema.arguments):
            yield rest, func


_META = torch.device("meta")


def _creator(func: Any) -> Any:
    name = func._schema.name.partition("::")[2]
    if name == "_efficientzerotensor":
        func = torch.ops.aten.zeros.default  # zeros without memory have no numbers that could be read

    def create(*args: Any, **kwargs: Any) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            # Raises CUDA's error for a device that is not there, before anything is made.
            index = devices.index_of(kwargs.get("device"))
            kwargs["device"] = torch.device("cpu")
            kwargs.pop("pin_memory", None)
            if name.startswith("empty"):
                # The device may be too small for what this machine could not hold either: its refusal comes first.
                options = {n: v for n, v in kwargs.items() if n != "device"}
                memory.of(index).check_room(
                    on_host(func, args, {**options, "device": _META}).untyped_storage().nbytes()
                )
            if draws:
                with generators.drawing(index):
                    return wrap(on_host(func, args, kwargs), index)
            return wrap(on_host(func, args, kwargs), index)

    draws = generators.draws(func)
    return create


def _whole() -> Iterator[tuple[str, Any]]:
    """Operators that the CPU has a kernel for and other backends compose of smaller ones, which rounds differently."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith("aten::") or not has(qualified, "CPU"):
            continue
        # Composed, they would round as no single kernel does.
        if has(qualified, "CompositeImplicitAutograd") and not has(qualified, "PrivateUse1"):
            name, _, overload = qualified.partition("::")[2].partition(".")
            yield qualified.partition("::")[2], getattr(getattr(torch.ops.aten, name), overload or "default")


def _on_the_way(func: Any) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run(func, args, kwargs)

    return kernel


def install(library: torch.library.Library) -> None:
    """Register them for the backend."""
    for name, func in _whole():
        library.impl(name, _on_the_way(func), "PrivateUse1")  # type: ignore[no-untyped-call]
    for name, func in _creators():
        create = _creator(func)
        library.impl(name, create, "PrivateUse1")  # type: ignore[no-untyped-call]
        if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CUDA"):
            # What reaches the dispatcher untranslated: a default device, say, is filled in below our function mode.
            library.impl(name, create, "CUDA")  # type: ignore[no-untyped-call]
