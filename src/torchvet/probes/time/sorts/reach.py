"""How far into a sorted dimension a view of a sort's result reaches, and what taking that part alone would take."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clocked, medians, plain_torch

_MOST_BYTES = 64 << 20
"""Of what is made for one line. The program may have left little memory."""
_COPIES = 4
"""Tensors as large as what is sorted that are alive at once, about."""
_SECONDS = 0.4


class Sorted(NamedTuple):
    """What is sorted: so many rows of so many elements, along a dimension with this stride."""

    rows: int
    size: int
    stride: int
    dtype: torch.dtype
    descending: bool
    stable: bool


class Taken(NamedTuple):
    """Seconds of the sort and of `topk`."""

    whole: float
    few: float


def form_of(tensor: torch.Tensor, dim: int, descending: bool, stable: bool) -> Sorted | None:
    """What a sort's result is made of; None of one whose elements do not lie side by side, or without a row."""
    size = tensor.shape[dim] if tensor.dim() else 0
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if not size or tensor.numel() != extent or tensor.storage_offset():
        return None
    return Sorted(tensor.numel() // size, size, tensor.stride(dim), tensor.dtype, descending, stable)


def reach(form: Sorted, view: torch.Tensor) -> tuple[int, int]:
    """The first and the last place in the order that a view of the result reads."""
    whole = form.stride * form.size
    first = last = view.storage_offset() // form.stride % form.size
    within = view.storage_offset() % form.stride
    for count, step in zip(view.shape, view.stride(), strict=True):
        if count < 2 or step % whole == 0:
            continue
        if step % form.stride == 0 and step < whole:
            last += step // form.stride * (count - 1)
        else:
            within += step * (count - 1)
    # What goes beyond one row, or through several dimensions at once, reads all.
    return (first, last) if within < form.stride and last < form.size else (0, form.size - 1)


def timed(form: Sorted, few: int, last: bool) -> Taken | None:
    """What both ways take; `last` where the end of the order is used. Of many rows a part is timed."""
    rows = max(1, min(form.rows, _MOST_BYTES // (_COPIES * 8 * form.size)))
    if private.modes_on() or rows * form.size * 8 * _COPIES > 2 * _MOST_BYTES:
        return None
    largest = form.descending != last
    with plain_torch(False):
        # Its own numbers: the program's generators must not be drawn from.
        chance = torch.Generator(device="cpu").manual_seed(0)
        given = torch.rand(rows, form.size, generator=chance, device="cpu")
        given = (given * (1 << 20)).to(form.dtype) if not form.dtype.is_floating_point else given.to(form.dtype)
        if form.stride > 1:
            # The dimension is not the last: its elements lie apart.
            given = given.t().contiguous().t()
        taken = medians(
            [
                clocked(lambda: torch.sort(given, dim=-1, descending=form.descending, stable=form.stable)),
                clocked(lambda: torch.topk(given, few, dim=-1, largest=largest)),
            ],
            _SECONDS,
        )
    scale = form.rows / rows
    return Taken(taken[0] * scale, taken[1] * scale)
