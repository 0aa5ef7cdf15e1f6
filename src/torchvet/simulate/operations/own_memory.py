"""Operators that CUDA's kernels do with other memory than the CPU's. The numbers are the CPU's."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.allocation.temporaries import copy_of, held
from torchvet.simulate.operations import accumulating
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
        # As many partial sums as the kernel has: rows of ten, and one for each index.
        parts = count // _ROWS + some
        numbers = [count, count, count, some, some, parts, count if by_frequency else 0]
        # Sums of half gradients are kept in float32.
        wide = max(4, by_out.element_size())
        held(out.ordinal, [*(indices.element_size() * n for n in numbers), wide * parts * width])
    return out


def index_put(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`index_put`: where it adds up, as gradients of `x[indices]` are, the indices are sorted with their places
    (`index_put_with_sort_kernel` of `cuda/Indexing.cu`)."""
    out = accumulating.scatter(func, args, kwargs)
    if len(args) > 3 and args[3]:
        held(out.ordinal, [8 * _indices(args[0], args[1], args[2])] * 4)
    return out


def _indices(given: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor) -> int:
    """How many places are written to: masks tell by the values that come for them."""
    by_number = [i for i in indices if i is not None]
    if all(i.dtype not in (torch.bool, torch.uint8) for i in by_number):
        shape: torch.Size = torch.broadcast_shapes(*(i.shape for i in by_number))  # type: ignore[no-untyped-call]
        return shape.numel()
    # `None` stands for a whole dimension before the indexed ones.
    first = next(place for place, i in enumerate(indices) if i is not None)
    rest = given.shape[first + sum(i.dim() if i.dtype is torch.bool else 1 for i in by_number) :]
    return values.numel() // max(1, given.shape[:first].numel() * rest.numel())


def softmax(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`_softmax` and `_log_softmax`: `host_softmax` of `cuda/SoftMax.cu` copies what is not dense in order."""
    out = compute(func, args, kwargs)
    held(out.ordinal, [copy_of(args[0])])
    return out


def softmax_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`_softmax_backward_data`: gradient and result are multiplied first (`softmax_backward_cuda_out`)."""
    out = compute(func, args, kwargs)
    held(out.ordinal, [out.numel() * args[0].element_size(), copy_of(args[1])])
    return out


def log_softmax_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """`_log_softmax_backward_data`."""
    out = compute(func, args, kwargs)
    held(out.ordinal, [copy_of(args[0]), copy_of(args[1])])
    return out


def log_sigmoid(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """`log_sigmoid_forward`: CUDA's kernel keeps nothing (`cuda/ActivationLogSigmoidKernel.cu`)."""
    out, _ = on_host(func, [args[0].host], kwargs)
    # The second result is the CPU kernel's buffer; CUDA gives an empty one.
    return wrap(out, args[0].ordinal), wrap(out.new_empty(0), args[0].ordinal)


def log_sigmoid_backward(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """What the CPU's kernel would have kept is worked out again."""
    by_out, given, _ = (numbers_of(a) for a in args)
    _, kept = on_host(_aten.log_sigmoid_forward.default, [given], {})
    return wrap(on_host(func, [by_out, given, kept], kwargs), args[0].ordinal)


def install() -> None:
    """Let these operators be done here."""
    SPECIAL[_aten.embedding_dense_backward.default] = embedding_backward
    SPECIAL[_aten.index_put.default] = index_put
    SPECIAL[_aten._softmax.default] = SPECIAL[_aten._log_softmax.default] = softmax
    SPECIAL[_aten._softmax_backward_data.default] = softmax_backward
    SPECIAL[_aten._log_softmax_backward_data.default] = log_softmax_backward
    SPECIAL[_aten.log_sigmoid_forward.default] = log_sigmoid
    SPECIAL[_aten.log_sigmoid_backward.default] = log_sigmoid_backward
