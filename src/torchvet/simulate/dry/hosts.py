"""The host's side of a dry run: large tensors that the program makes there have no memory, and what is worked out from
them is not worked out. Small tensors, and all that comes from files, lists and arrays, are real."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchvet.simulate.arguments import meta_like, replaced, tensors_in
from torchvet.simulate.dry import phantoms
from torchvet.simulate.dry.batches import batches
from torchvet.simulate.operations import operators
from torchvet.simulate.tensors import SimulatedTensor

_META = torch.device("meta")
_aten = torch.ops.aten
_REAL = frozenset(["_local_scalar_dense", "equal", "set_", "resize_", "is_pinned", "_pin_memory", "nonzero"])
"""Operators that are carried out on what has no memory: they read zeros, or only move a tensor's bounds."""


class HostMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator of its thread."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Some tensor has a dispatch of its own: the device's, or another's.
        if types:
            if all(t is SimulatedTensor or issubclass(t, SimulatedTensor) for t in types):
                return operators.run(func, args, kwargs)
            return func(*args, **kwargs)
        # Higher-order operators have no schema to ask.
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        # Asked for on a device: that is `operators`' matter.
        if _elsewhere(kwargs):
            return func(*(_in_rows(func, args) if batches.changes else args), **kwargs)
        tensors = list(tensors_in((*args, *kwargs.values())))
        # Before `_makes`, as `zeros_like` of a phantom is one.
        if any(map(phantoms.is_phantom, tensors)):
            return _unworked(func, args, kwargs)
        if _makes(func) and all(t.device.type == "cpu" for t in tensors):
            return _made(func, args, kwargs)
        return func(*args, **kwargs)


def _in_rows(func: Any, args: Any) -> Any:
    """What is given to an operator that leads to a device, with another batch size: see `batches.py`."""
    if func is _aten._to_copy.default:
        return [batches.grown(args[0])]
    return batches.made(func, args)


def _elsewhere(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type != "cpu"


_makers: dict[Any, bool] = {}


def _makes(func: Any) -> bool:
    """Whether an operator makes a tensor out of sizes: its device can be asked for, and it copies nothing."""
    found = _makers.get(func)
    if found is None:
        schema = func._schema
        name = schema.name.partition("::")[2]
        found = _makers[func] = (
            any(a.name == "device" for a in schema.arguments)
            and [str(r.type) for r in schema.returns] == ["Tensor"]
            # These have a `device` argument and copy numbers.
            and not name.startswith(("_to_copy", "to", "_pin", "_sparse", "_nested", "_cudnn"))
        )
    return found


def _made(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    shape = func(*map(_meta, args), **{**kwargs, "device": _META, "pin_memory": False} if kwargs else {"device": _META})
    large = phantoms.LARGE_ROW if shape.dim() == 1 else phantoms.LARGE
    # Small ones are real: lengths, labels and seeds decide what the program does.
    if phantoms.bytes_of(shape) < large or shape.layout is not torch.strided:
        return func(*args, **kwargs)
    return phantoms.phantom(shape.size(), shape.stride(), shape.dtype)


def _unworked(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator on a tensor without memory."""
    plan = operators.plan_of(func)
    # Views of a phantom take no memory either.
    if plan.name in _REAL or (plan.views and not plan.written) or plan.name == "detach":
        return func(*args, **kwargs)
    # To write would take real memory for pages that nobody reads: the numbers stay unknown zeros.
    if plan.written and not plan.reshapes:
        return operators.written_of(plan, args, kwargs)
    try:
        out = func(*map(_meta, args), **{n: _meta(a) for n, a in kwargs.items()})
    except (NotImplementedError, RuntimeError):
        # Without a meta kernel the operator really runs: it reads zeros, and takes memory for its result.
        return func(*args, **kwargs)
    return replaced(out, phantoms.made_up)


def _meta(value: Any) -> Any:
    return replaced(value, meta_like, _META)


def enter() -> None:
    """Begin in this thread, for good."""
    HostMode().__enter__()  # type: ignore[no-untyped-call]
