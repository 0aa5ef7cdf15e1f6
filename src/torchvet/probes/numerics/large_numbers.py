"""Numbers beyond those that a floating type tells apart, and differences that lie within a few of its steps there."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchvet.probes.base.elements import is_plain
from torchvet.probes.internals import private
from torchvet.recording.records.numeric import DIGITS

NARROW = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
MOST = 65_536
"""Elements of a tensor that are compared."""
_CLOSE = 8
"""Steps of a type within which a difference is known to a digit only. Chosen, not measured."""
_LEVELS = 8
"""Times that numbers may lie above or below those of a cast to be taken for them. Chosen, not measured."""
_FEWEST = 4
"""Differences below which nothing is said of them. Chosen, not measured."""


def some_rows(source: torch.Tensor) -> torch.Tensor:
    """Leading rows of a tensor, with as many elements as are compared, as a table or a row."""
    while source.dim() > 2:
        source = source[0] if source.shape[0] == 1 else source.flatten(0, 1) if source.is_contiguous() else source[0]
    if source.dim() == 2:
        source = source[:, :MOST]
        source = source[: max(1, MOST // max(1, source.shape[1]))]
    return source if source.dim() == 2 else source.reshape(-1)[:MOST]


def is_large(numbers: torch.Tensor, exact: int = min(DIGITS.values())) -> bool:
    """Whether some numbers are beyond those that a type tells apart."""
    return numbers.numel() > 0 and bool((numbers.abs() > exact).any())


def step_at(number: float, dtype: torch.dtype) -> float:
    """The distance of a type's numbers there."""
    # Without a tensor: under a default device it would be made there.
    return 2.0 ** math.floor(math.log2(number)) * torch.finfo(dtype).eps


def level_of_close(difference: Any, operand: Any) -> float | None:
    """How large the numbers are whose differences lie within a few steps of their type, most of them; None where they
    do not, or nothing can be told."""
    if not (_is_seen(difference) and _is_seen(operand)) or operand.dtype is not difference.dtype:
        return None
    numbers = _aligned(operand.detach(), difference.shape)
    if numbers is None:
        return None
    numbers, gaps = _leading(numbers).double().abs(), _leading(difference.detach()).double().abs()
    large = numbers.isfinite() & gaps.isfinite() & (numbers > DIGITS[NARROW[operand.dtype]])
    if int(large.sum()) < _FEWEST:
        return None
    level = float(numbers[large].median())
    return level if float(gaps[large].median()) <= _CLOSE * step_at(level, operand.dtype) else None


def is_level(number: float, other: float) -> bool:
    """Whether two numbers are about as large as each other."""
    return number / _LEVELS <= other <= number * _LEVELS


def _is_seen(value: Any) -> bool:
    return is_plain(value) and value.dtype in NARROW and not private.is_functorch_wrapped(value)


def _leading(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements of any tensors of one shape."""
    rows = max(1, MOST * len(tensor) // max(1, tensor.numel())) if tensor.dim() else 0
    return (tensor[:rows] if rows else tensor).reshape(-1)[:MOST]


def _aligned(operand: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """A view of an operand with the shape of the difference: it may be broadcast, or longer by those at one end."""
    if operand.dim() > len(shape):
        return None
    for dim, want in zip(range(-operand.dim(), 0), shape[len(shape) - operand.dim() :], strict=True):
        if operand.shape[dim] > want:
            operand = operand.narrow(dim, 0, want)
    sizes = zip(reversed(operand.shape), reversed(shape), strict=False)
    return operand.expand(shape) if all(have in (1, want) for have, want in sizes) else None
