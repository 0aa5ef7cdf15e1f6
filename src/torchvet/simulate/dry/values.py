"""Numbers in a dry run: which are known, and what stands for those that are not.

Known are small tensors that were worked out from what the program itself put in: lengths, masks and labels of a batch,
a scaler's scale. All others are made up where the host asks: 1 for floating-point numbers, 0 for integers, and for a
truth value what holds in a healthy program: all is finite, nothing is NaN, no check finds anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

MOST = 1 << 18
"""Bytes up to which a result is worked out where all that it is made of is known."""

read: dict[str, int] = {}
"""How often the host asked for numbers that nobody knows, by what it was told."""

told: list[Callable[[], None]] = []
"""Called for every read of a number that nobody knows."""


def note(what: str) -> None:
    """The host has read numbers that nobody knows, and was told this."""
    read[what] = read.get(what, 0) + 1
    for tell in told:
        tell()


class _Known:
    """Numbers of a meta tensor; `valid` is shared by all that are views of one storage."""

    __slots__ = ("numbers", "valid")

    def __init__(self, numbers: torch.Tensor, valid: list[bool]) -> None:
        self.numbers, self.valid = numbers, valid


def known(meta: torch.Tensor) -> torch.Tensor | None:
    """The numbers of a meta tensor where they are known, as a host tensor."""
    found: _Known | None = meta.__dict__.get("torchvet_known")
    # A write of something unknown through any view has made it invalid.
    return None if found is None or not found.valid[0] else found.numbers


def know(meta: torch.Tensor, numbers: torch.Tensor, same: torch.Tensor | None = None) -> None:
    """From now on the numbers are known. `same` is the meta tensor that this is a view of."""
    # One flag for all views, so that a write through any of them makes all unknown.
    valid = same.__dict__["torchvet_known"].valid if same is not None else [True]
    meta.__dict__["torchvet_known"] = _Known(numbers, valid)


def take_over(meta: torch.Tensor, source: torch.Tensor) -> bool:
    """After `meta.copy_(source)`: whether the numbers are known from now on."""
    numbers, held = known(source), meta.__dict__.get("torchvet_known")
    if numbers is None or meta.numel() * meta.itemsize > MOST:
        return False
    with torch._C._DisableTorchDispatch():
        # In place, so that views of the same storage see the new numbers.
        if held is not None and held.valid[0]:
            held.numbers.copy_(numbers)
            return True
        if meta.storage_offset() or meta.untyped_storage().nbytes() != meta.numel() * meta.itemsize:
            return False  # a part of something that is not known
        fresh = torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype).copy_(numbers)
    know(meta, fresh)
    return True


def forget(meta: torch.Tensor) -> None:
    """Numbers that nobody knows were written to it: what shares its storage is not known any more either."""
    found: _Known | None = meta.__dict__.get("torchvet_known")
    if found is not None:
        found.valid[0] = False


_ALONE = dict.fromkeys(("isfinite", "isreal", "all", "isclose"), True) | dict.fromkeys(
    ("isnan", "isinf", "isposinf", "isneginf", "any"), False
)
"""What an operator says of numbers that nobody knows: a healthy program's are finite and pass its checks."""
_OF_EVERY = frozenset(["all", "logical_and", "bitwise_and", "mul"])
"""True only where every operand is."""
_NEGATES = frozenset(["logical_not", "bitwise_not"])
_SAME = frozenset(
    ["all", "any", "_to_copy", "clone", "detach", "alias", "view", "select", "slice", "squeeze", "unsqueeze", "reshape",
     "expand", "logical_and", "logical_or", "mul", "bitwise_and", "bitwise_or", "stack", "cat", "_unsafe_view"]
)  # fmt: skip


def say(name: str, args: Any, given: list[torch.Tensor], out: torch.Tensor) -> None:
    """Note what a truth value stands for, by the operator that made it. `given` are the tensors among its arguments."""
    said = _said(name, args, [t.__dict__.get("torchvet_said") for t in given]) if out.dtype is torch.bool else None
    if said is not None:
        out.__dict__["torchvet_said"] = said


def _said(name: str, args: Any, told: list[bool | None]) -> bool | None:
    # Identity: `x == x` is how torch asks for NaN.
    if name in ("eq", "ne") and (args[0] is args[1] or (isinstance(args[1], float) and args[1] == math.inf)):
        # What torch makes `isnan`, `isinf` and `isfinite` of: equal to itself, and to no infinity.
        return (name == "eq") is (args[0] is args[1])
    if name in _NEGATES:
        # Of an unknown truth value the opposite of False.
        return not (told and told[0])
    if name in _SAME and any(t is not None for t in told):
        return all(t is not False for t in told) if name in _OF_EVERY else any(told)
    return _ALONE.get(name)


def stand_in(meta: torch.Tensor) -> float | int | bool:
    """What an unknown number is taken for."""
    if meta.dtype is torch.bool:
        return bool(meta.__dict__.get("torchvet_said", False))
    return 1.0 if meta.is_floating_point() or meta.is_complex() else 0


def number(meta: torch.Tensor) -> Any:
    """`.item()`: the number, or what stands for it."""
    numbers = known(meta)
    if numbers is not None:
        return numbers.item()
    value = stand_in(meta)
    if isinstance(value, float) and meta.is_complex():
        return complex(value)
    note(repr(value))
    return value
