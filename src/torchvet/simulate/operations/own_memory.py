"""Operators that CUDA's kernels do with other memory than the CPU's. The numbers are the CPU's."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.allocation import temporaries
from torchvet.simulate.operations.operators import SPECIAL, compute, on_host
from torchvet.simulate.tensors import numbers_of, wrap

_aten = torch.ops.aten
_FEW, _ROWS = 3072, 10
"""`cuda/Embedding.cu` sorts more indices than these; `EmbeddingBackwardKernel.cu` adds up so many rows at a time."""


def embedding_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`embedding_dense_backward`: many indices are sorted, and their rows summed in parts, in float32 or wider."""
    out = compute(func, args, kwargs)
    by_out, indices, rows, _, by_frequency = args
    count, width = indices.numel(), by_out.size(-1)
    if count and (count > _FEW or by_frequency):
        some = min(count, rows)
        parts = count // _ROWS + some
        numbers = [count, count, count, some, some, parts, count if by_frequency else 0]
        wide = max(4, by_out.element_size())
        temporaries.held(out.ordinal, [*(indices.element_size() * n for n in numbers), wide * parts * width])
    return out


def log_sigmoid(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`log_sigmoid_forward`: CUDA's kernel keeps nothing (`cuda/ActivationLogSigmoidKernel.cu`)."""
    out, _ = on_host(func, [args[0].host], kwargs)
    return wrap(out, args[0].ordinal), wrap(out.new_empty(0), args[0].ordinal)


def log_sigmoid_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """What the CPU's kernel would have kept is worked out again."""
    by_out, given, _ = (numbers_of(a) for a in args)
    _, kept = on_host(_aten.log_sigmoid_forward.default, [given], {})
    return wrap(on_host(func, [by_out, given, kept], kwargs), args[0].ordinal)


def install() -> None:
    """Let these operators be done here."""
    SPECIAL[_aten.embedding_dense_backward.default] = embedding_backward
    SPECIAL[_aten.log_sigmoid_forward.default] = log_sigmoid
    SPECIAL[_aten.log_sigmoid_backward.default] = log_sigmoid_backward
