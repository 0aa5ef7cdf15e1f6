"""How far along a dimension of an operator's result a view of it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch


class Axis(NamedTuple):
    """A dimension of a result: so many elements, with this stride."""

    size: int
    stride: int
    itemsize: int


@dataclass(eq=False)
class Part:
    """A result of a call, and what was read of it so far along one dimension."""

    axis: Axis
    first: int
    last: int = -1

    @property
    def head(self) -> int:
        """How many are used, counted from the beginning."""
        return self.last + 1

    @property
    def tail(self) -> int:
        """How many are used, counted from the end; 0 of what nobody has read."""
        return self.axis.size - self.first

    def read(self, view: torch.Tensor) -> None:
        """A view of it was read."""
        self._reaches(*reach(self.axis, view))

    def read_all(self) -> None:
        """All of it may be read."""
        self._reaches(0, self.axis.size - 1)

    def _reaches(self, first: int, last: int) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)


def part_of(tensor: torch.Tensor, dim: int) -> Part | None:
    """A result, of which nothing was read; None of one whose elements do not lie side by side, or without a row."""
    size = tensor.shape[dim] if tensor.dim() else 0
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if not size or tensor.numel() != extent or tensor.storage_offset():
        return None
    return Part(Axis(size, tensor.stride(dim), tensor.element_size()), size)


def reach(axis: Axis, view: torch.Tensor) -> tuple[int, int]:
    """The first and the last place along a dimension that a view of the result reads."""
    whole = axis.stride * axis.size
    first = last = view.storage_offset() // axis.stride % axis.size
    within = view.storage_offset() % axis.stride
    for count, step in zip(view.shape, view.stride(), strict=True):
        if count < 2 or step % whole == 0:
            continue
        if step % axis.stride == 0 and step < whole:
            last += step // axis.stride * (count - 1)
        else:
            within += step * (count - 1)
    # What goes beyond one row, or through several dimensions at once, reads all; so does another type of number.
    told = within < axis.stride and last < axis.size and view.element_size() == axis.itemsize
    return (first, last) if told else (0, axis.size - 1)
