"""`nn.LSTM`, `nn.GRU` and `nn.RNN` as one operator, as cuDNN has them: their numbers are the CPU's own, to the bit.

Like cuDNN's they cannot be differentiated twice. With cuDNN switched off torch composes them of cells, which can.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchvet.simulate.operations import placement
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, wrap

_CASTING = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


_TWICE = (
    "the derivative for '_cudnn_rnn_backward' is not implemented. Double backwards is not supported for CuDNN RNNs due "
    "to limitations in the CuDNN API. To run double backwards, please disable the CuDNN backend temporarily while "
    "running the forward pass of your RNN. For example: \nwith torch.backends.cudnn.flags(enabled=False):\n"
    "    output = model(inputs)"
)


heard = [False]
"""Whether dispatch modes see the operators within, for who looks where a number came from: else there is one kernel, as
of cuDNN."""


class _Whole(torch.autograd.Function):
    """The CPU's operator on the numbers, with the CPU's graph for the way back."""

    @staticmethod
    def forward(ctx: Any, func: Any, spec: Any, *leaves: Any) -> tuple[torch.Tensor, ...]:
        index = next(leaf.ordinal for leaf in leaves if isinstance(leaf, SimulatedTensor))
        hosts = [
            # Leaves of a graph of their own: the CPU's operator records it, and this Function goes back
            # through it.
            numbers_of(leaf).detach().requires_grad_(needed) if isinstance(leaf, torch.Tensor) else leaf
            for leaf, needed in zip(leaves, ctx.needs_input_grad[2:], strict=True)
        ]
        grad = any(ctx.needs_input_grad)
        unheard = nullcontext() if heard[0] else torch._C._DisableTorchDispatch()
        with torch.set_grad_enabled(grad), unheard:
            outs = func(*pytree.tree_unflatten(hosts, spec))
        if grad:
            ctx.index, ctx.hosts, ctx.outs = index, hosts, outs
            kept = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            # The reserve only takes the place that cuDNN's would in device memory.
            ctx.save_for_backward(_reserve(func._schema.name, outs, index), *kept)
        return tuple([wrap(out.detach(), index) for out in outs])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _, *kept = ctx.saved_tensors  # torch's error where the graph has been freed
        with torch.no_grad():
            found = _Whole._found(ctx, gradients)
        # `create_graph`: the gradients get a node that refuses.
        if torch.is_grad_enabled():
            found = _Once.apply(len(found), *found, *kept, *gradients)  # type: ignore[no-untyped-call]
        return None, None, *found

    @staticmethod
    def _found(ctx: Any, gradients: Any) -> list[Any]:
        wanted = [h for h in ctx.hosts if isinstance(h, torch.Tensor) and h.requires_grad]
        # The engine itself: `torch.autograd.grad` is what a program calls, and is watched as such.
        by_outs = tuple([numbers_of(g) for g in gradients])
        found = torch.autograd.Variable._execution_engine.run_backward(
            tuple(ctx.outs), by_outs, True, False, tuple(wanted), allow_unreachable=True, accumulate_grad=False
        )
        by_host = iter(None if g is None else wrap(g, ctx.index) for g in found)
        return [next(by_host) if isinstance(h, torch.Tensor) and h.requires_grad else None for h in ctx.hosts]


class _Once(torch.autograd.Function):
    """Gradients as they are. To differentiate them is refused, in cuDNN's words: without it they would pass for
    constants."""

    @staticmethod
    def forward(ctx: Any, number: int, *values: Any) -> tuple[Any, ...]:
        return tuple(None if v is None else v.view_as(v) for v in values[:number])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(_TWICE)


def _reserve(name: str, outs: Any, index: int) -> torch.Tensor:
    """What is kept for the way back: each step's gates and state in each layer. cuDNN does not publish its own size."""
    kind = name.partition("::")[2]
    layers = max(1, outs[1].size(0))
    per_layer = outs[0].numel() * (_GATES[kind] + 1)
    return wrap(torch.empty(per_layer * layers * outs[0].element_size(), dtype=torch.uint8), index)


def _kernel(func: Any) -> Any:
    packed = func._schema.overload_name == "data"

    def kernel(*args: Any) -> Any:
        # torch composes cells then, which can be differentiated twice.
        if not torch.backends.cudnn.enabled:
            return func.decompose(*args)
        casting = torch.is_autocast_enabled("cuda")
        with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(_CASTING):
            leaves, spec = pytree.tree_flatten(list(args))
            _check(leaves, packed)
            if casting:
                leaves = [_cast(leaf) for leaf in leaves]
            return _Whole.apply(func, spec, *leaves)  # type: ignore[no-untyped-call]

    return kernel


def _check(leaves: list[Any], packed: bool) -> None:
    """All on one device; how long packed sequences are stands on the host."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    found = [str(t.device) for i, t in enumerate(tensors) if not (packed and i == 1)]
    if found[0] != found[-1]:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, found input tensor at "
            f"{found[0]} and parameter tensor at {found[-1]}"
        )
    if len(set(found)) > 1:
        raise placement.devices_differ("rnn", found)


def _cast(leaf: Any) -> Any:
    eligible = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype is not torch.float64
    return leaf.to(torch.get_autocast_dtype("cuda")) if eligible else leaf


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    for name in _GATES:
        for overload in ("input", "data"):
            func = getattr(getattr(torch.ops.aten, name), overload)
            library.impl(f"{name}.{overload}", _kernel(func), "AutogradPrivateUse1")  # type: ignore[no-untyped-call]
