"""Numbers for the rows of tensors, by which rows are known again, and a table of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn

from torchvet.probes.numerics.half import HALF

_ELEMENTS, _RESULTS = 256, 16
"""Elements of a row, and of what came out for it, that are looked at."""
_WIDEST = 16_384
"""Rows of a call from which on it is not looked at."""
_SLOTS, _ROWS = 1 << 16, 1 << 13
"""Places for rows of a module, and how many are taken at most. If there are more rows, every second one is remembered,
then every fourth."""
_SKIPPED = 24
"""Bits of a digest below those that say its place."""
_CALLS = 256
"""Stretches of calls that are counted apart."""
_NEAR, _NEAR_HALF = 1e-4, 2e-2
"""How far results of the same row may be apart, as a part of their sum: kernels differ with the size of a batch."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device)
_GOLDEN = (math.sqrt(5) - 1) / 2


class Unknown(Exception):
    """Arguments of which nothing is known."""


class Rows:
    """The rows that a module has had: in which step each was last, and what came out.

    A table of a fixed size: one that grows would look like a leak of the program's.
    """

    def __init__(self) -> None:
        self._digests = torch.zeros(0, dtype=torch.int64, device="cpu")
        self._steps = torch.zeros(0, dtype=torch.int32, device="cpu")
        self._results = torch.zeros(0, dtype=torch.float64, device="cpu")
        self._used = 0
        self._mask = 0
        """Only digests without these bits are kept: the same rows in every epoch."""
        self.counts: list[list[int]] = []
        """By stretch of calls: how many calls, rows that were looked at, and those of them that came again."""
        self._each = 1
        """Calls of a stretch."""

    def add(self, step: int, digests: torch.Tensor, results: torch.Tensor, near: torch.Tensor) -> bool:
        """A call: its rows, each with a number of its result and how far that may be from an equal one. Whether no row
        that came again had another result."""
        if not len(self._digests):
            self._digests = torch.zeros(_SLOTS, dtype=torch.int64, device="cpu")
            self._steps, self._results = self._digests.to(torch.int32), self._digests.double()
        if self._mask:
            kept = (digests & self._mask) == 0
            digests, results, near = digests[kept], results[kept], near[kept]
        slots = (digests >> _SKIPPED) & (_SLOTS - 1)
        there = self._digests[slots]
        again = (there == digests) & (self._steps[slots] < step)
        # NaN is no result that could be kept.
        same = ~again | ((self._results[slots] - results).abs() <= near)
        # A slot that another row has stays that row's.
        free = there == 0
        mine = free | (there == digests)
        self._digests[slots[mine]] = digests[mine]
        # Two new rows of this call may have come to one slot: one of them has it.
        mine = self._digests[slots] == digests
        self._results[slots[mine]], self._steps[slots[mine]] = results[mine], step
        self._count(len(digests), int(again.sum()))
        self._used += int(free.sum())
        while self._used > _ROWS:
            self._mask = 2 * self._mask + 1
            self._digests[(self._digests & self._mask) != 0] = 0
            self._used = int(self._digests.count_nonzero())
        return bool(same.all())

    @property
    def distinct(self) -> int:
        """How many different rows there were, about."""
        return int(self._digests.count_nonzero()) * (self._mask + 1)

    def _count(self, rows: int, again: int) -> None:
        if not self.counts or self.counts[-1][0] >= self._each:
            if len(self.counts) >= _CALLS:
                pairs = zip(self.counts[::2], self.counts[1::2], strict=True)
                self.counts = [[a + b for a, b in zip(one, other, strict=True)] for one, other in pairs]
                self._each *= 2
            self.counts.append([0, 0, 0])
        for at, more in enumerate((1, rows, again)):
            self.counts[-1][at] += more

    def of_calls(self, stretches: slice) -> tuple[int, int]:
        """The rows of some stretches that were looked at, and those that came again."""
        return sum(one[1] for one in self.counts[stretches]), sum(one[2] for one in self.counts[stretches])


def is_plain(value: torch.Tensor) -> bool:
    """Whether it is a tensor of torch's own with elements on the CPU."""
    own = type(value) is torch.Tensor or type(value) is nn.Parameter
    return own and value.layout is torch.strided and value.device.type == "cpu" and not value.is_nested


def is_dense(value: Any) -> bool:
    """Whether a parameter has elements that can be looked at."""
    return isinstance(value, torch.Tensor) and is_plain(value) and value.is_floating_point() and value.numel() > 0


def digests_of(args: Any, kwargs: Any) -> torch.Tensor | None:
    """A number for each row of a call: of what the row holds in all operands, and of all that is not made of rows; None
    where there is but one row."""
    given = list(_leaves([*args, sorted(kwargs.items())]))
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    rows = next((len(one) for one in tensors if one.dim()), 0)
    if rows > _WIDEST or not all(map(is_plain, tensors)):
        raise Unknown
    if rows < 2:
        return None
    total = torch.zeros(rows, dtype=torch.int64, device="cpu")
    shared = hash(tuple(one for one in given if not isinstance(one, torch.Tensor)))
    for number, one in enumerate(tensors):
        # By position: two operands that change places are another call.
        total *= 31
        if one.dim() and len(one) == rows:
            total += _mixed(one.reshape(rows, 1) if one.dim() == 1 else one)
            shared = hash((shared, one.shape[1:], one.dtype))
        else:
            shared = hash((shared, number, one.shape, int(_mixed(one.reshape(1, -1)))))
    return total ^ shared


def _leaves(value: Any) -> Iterator[Any]:
    """The tensors and plain values among arguments."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, dict):
        yield from _leaves(list(value.items()))
    elif isinstance(value, (*_PLAIN, torch.Tensor)):
        yield value
    else:
        raise Unknown


def _mixed(rows: torch.Tensor) -> torch.Tensor:
    """A number for each row, of the bits of its elements: some of them, evenly spread, where it has very many."""
    if rows.is_complex():
        rows = torch.view_as_real(rows.resolve_conj())
    if rows.dtype is torch.bool:
        rows = rows.to(torch.uint8)
    # Their bits: a comparison of numbers would call 0 and -0 the same.
    kind = _INTEGERS.get(rows.element_size())
    if kind is None:
        raise Unknown
    if not rows[0].numel():
        return torch.zeros(len(rows), dtype=torch.int64, device="cpu")
    chosen = rows[positions(rows.shape[1:], _ELEMENTS, rows=True)].resolve_neg().contiguous()
    sums = (chosen.view(kind).to(torch.int64) * _weights()[: chosen.shape[1]]).sum(1)
    # The lowest bits of round numbers are zero: the upper ones are brought down.
    return (sums ^ (sums >> 33)) * -49064778989728563 ^ (sums >> 29)


@lru_cache(256)
def positions(shape: tuple[int, ...], most: int, rows: bool = False) -> Any:
    """An index of at most so many elements of a shape; with `rows` of these elements of each row.

    Steps of the golden ratio: even steps would fall into the same few columns of a picture of a round size.
    """
    count = math.prod(shape)
    every = range(count) if count <= most else sorted({int(count * (n * _GOLDEN % 1)) for n in range(most)})
    flat = torch.tensor(list(every), dtype=torch.int64, device="cpu")
    found = torch.unravel_index(flat, shape)
    return (slice(None), *found) if rows else found


@cache
def _weights() -> torch.Tensor:
    """A large odd number for each position."""
    # A generator of its own: the program's must not be drawn from.
    own = torch.Generator(device="cpu").manual_seed(1)
    return torch.randint(-(2**62), 2**62, (_ELEMENTS,), generator=own, dtype=torch.int64, device="cpu") * 2 + 1


def results_of(output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row of an output the sum of a few elements, each with a weight of its own, and how far the sum may be
    from that of an equal row."""
    near = _NEAR_HALF if output.dtype in HALF else _NEAR
    if output.is_complex():
        output = torch.view_as_real(output.resolve_conj())
    rows = output.reshape(len(output), 1) if output.dim() == 1 else output
    if not rows[0].numel():
        raise Unknown
    some = rows[positions(rows.shape[1:], _RESULTS, rows=True)].double()
    weights = torch.arange(1, some.shape[1] + 1, dtype=torch.float64, device="cpu")
    sizes = some.abs() @ weights
    # One that is nearly zero among others is what is left of larger terms, with their rounding.
    return some @ weights, torch.maximum(sizes, sizes.mean()) * near
