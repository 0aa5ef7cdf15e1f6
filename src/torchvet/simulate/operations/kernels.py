"""Operators that exist for GPUs alone, done with what the CPU has."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.operations.operators import SPECIAL, compute, on_host
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, wrap

_aten = torch.ops.aten


def lstm_cell(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """`_thnn_fused_lstm_cell`: gates `(batch, 4 * hidden)`, in order i, f, g, o → h, c, and the gates for backward."""
    index = args[0].ordinal
    input_gates, hidden_gates, cell, *biases = (numbers_of(a) for a in args)
    gates = input_gates + hidden_gates
    for bias in biases:
        if bias is not None:
            gates = gates + bias
    # cuDNN's order of gates, which is torch's as well.
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * cell + i * g
    hidden = o * new.tanh()
    return tuple([wrap(t, index) for t in (hidden, new, torch.cat([i, f, g, o], 1))])


def lstm_cell_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor | None, ...]:
    """Gradients of the gates, of the cell before, and of the biases, from those of h and c."""
    index = next(a.ordinal for a in args if isinstance(a, SimulatedTensor))
    by_hidden, by_cell, before, after, workspace, has_bias = (numbers_of(a) for a in args)
    if by_hidden is None and by_cell is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    squashed = after.tanh()
    by_hidden = torch.zeros_like(after) if by_hidden is None else by_hidden
    through = by_hidden * o * (1 - squashed * squashed)
    through = through if by_cell is None else through + by_cell
    gates = torch.cat(
        [
            through * g * i * (1 - i),
            through * before * f * (1 - f),
            through * i * (1 - g * g),
            by_hidden * squashed * o * (1 - o),
        ],
        1,
    )
    bias = wrap(gates.sum(0), index) if has_bias else None
    return wrap(gates, index), wrap(through * f, index), bias


def gru_cell(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`_thnn_fused_gru_cell`: gates `(batch, 3 * hidden)` in the order r, z, n → h, and what backward needs."""
    index = args[0].ordinal
    input_gates, hidden_gates, before, *biases = (numbers_of(a) for a in args)
    input_bias, hidden_bias = biases if biases and biases[0] is not None else (None, None)
    if input_bias is not None:
        input_gates, hidden_gates = input_gates + input_bias, hidden_gates + hidden_bias
    ir, iz, inew = input_gates.chunk(3, 1)
    hr, hz, hnew = hidden_gates.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inew + r * hnew).tanh()
    hidden = n + z * (before - n)
    return wrap(hidden, index), wrap(torch.cat([r, z, n, before, hnew], 1), index)


def gru_cell_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor | None, ...]:
    """Gradients of both sets of gates, of h before, and of both biases."""
    index = args[0].ordinal
    by_hidden, workspace, has_bias = (numbers_of(a) for a in args)
    r, z, n, before, hnew = workspace.chunk(5, 1)
    by_new = by_hidden * (1 - z) * (1 - n * n)
    by_r = by_new * hnew * r * (1 - r)
    by_z = by_hidden * (before - n) * z * (1 - z)
    input_gates = torch.cat([by_r, by_z, by_new], 1)
    hidden_gates = torch.cat([by_r, by_z, by_new * r], 1)
    biases = (wrap(input_gates.sum(0), index), wrap(hidden_gates.sum(0), index)) if has_bias else (None, None)
    return wrap(input_gates, index), wrap(hidden_gates, index), wrap(by_hidden * z, index), *biases


def flatten_weight(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """CUDA builds of torch lay a recurrent network's weights out for cuDNN; the CPU's kernels take them as they are."""
    weight: torch.Tensor = args[0][0]
    # Any tensor will do: nobody reads what the call gives.
    return weight.detach()


def activated(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`_addmm_activation`: CUDA's GELU there is the one by tanh."""
    return compute(func, args, kwargs, _by_tanh)


def _by_tanh(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if not kwargs.get("use_gelu"):
        return on_host(func, args, kwargs)
    factors: dict[str, Any] = {name: kwargs[name] for name in ("alpha", "beta") if name in kwargs}
    product = on_host(_aten.addmm.default, args, factors)
    gelu = _aten.gelu.out if "out" in kwargs else _aten.gelu.default
    return on_host(gelu, [product], {"approximate": "tanh", **{n: kwargs[n] for n in ("out",) if n in kwargs}})


def refused(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What has a kernel for the CPU and none for CUDA."""
    raise NotImplementedError(
        f"Could not run '{func._schema.name}' with arguments from the 'CUDA' backend. This operator has no CUDA kernel."
    )


def install() -> None:
    """Let these operators be done here."""
    SPECIAL[_aten._sparse_mm_reduce_impl.default] = refused
    SPECIAL[_aten._addmm_activation.default] = SPECIAL[_aten._addmm_activation.out] = activated
    SPECIAL[_aten._cudnn_rnn_flatten_weight.default] = flatten_weight
    SPECIAL[_aten._thnn_fused_lstm_cell.default] = lstm_cell
    SPECIAL[_aten._thnn_fused_lstm_cell_backward_impl.default] = lstm_cell_backward
    SPECIAL[_aten._thnn_fused_gru_cell.default] = gru_cell
    SPECIAL[_aten._thnn_fused_gru_cell_backward.default] = gru_cell_backward
