"""Times operators on made tensors in float64 and in float32, in turns."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import tensors_within
from torchvet.probes.internals import private

_SECONDS, _EACH = 1.5, 0.04
"""That timing all takes at most of this thread's own time, and one operator. Chosen, not measured."""
_ROUNDS = (2, 9)
_ENOUGH = 0.9
"""The share of the seconds whose operators are timed."""
_MOST_BYTES = 256 << 20
"""Of what is made for one operator, and of what it makes. The program may have left little memory."""
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_TENSOR = "tensor"

Call = tuple[Any, Any, Any]
"""An operator and what it is given, with forms in the place of tensors."""


class Taken(NamedTuple):
    """Of operators that took the seconds `of` in sampled steps: what they took when they were timed, weighted by how
    much of the steps they are."""

    of: float = 0.0
    wide: float = 0.0
    narrow: float = 0.0


class _Unknown(Exception):
    """An argument that cannot be made."""


def told(func: Any, args: Any, kwargs: Any, out: Any = None) -> Call | None:
    """A call without its tensors; None for one that draws random numbers, has other objects, makes much more than it is
    given, or is not torch's own."""
    # Once more is not for nothing elsewhere: an operator of the program's may count its calls, or write; one of
    # another library may wait for other ranks, or trust the indices that it gets.
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    if sum(one.numel() * one.itemsize for one in tensors_within([out])) > _MOST_BYTES:
        return None
    try:
        return func, _told(tuple(args)), _told(tuple(sorted(kwargs.items())))
    except _Unknown:
        return None


def _told(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not is_plain(value):
            raise _Unknown
        return _TENSOR, tuple(value.shape), value.stride(), value.dtype
    if isinstance(value, (tuple, list)):
        return type(value) is list, tuple([_told(one) for one in value])
    if isinstance(value, _PLAIN):
        return value.__class__, value
    raise _Unknown


def timed(calls: Mapping[Call, float]) -> Taken:
    """The calls that took most, each in turns."""
    whole, end = sum(calls.values()), time.thread_time() + _SECONDS
    of = wide = narrow = 0.0
    for call, seconds in sorted(calls.items(), key=lambda one: -one[1]):
        if of >= _ENOUGH * whole or time.thread_time() > end:
            break
        taken = None
        # An operator may refuse what was made for it.
        with suppress(RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            taken = _in_turns(call)
        if taken is not None:
            of += seconds
            wide += seconds
            narrow += seconds * taken[1] / taken[0]
    return Taken(of, wide, narrow)


def _in_turns(call: Call) -> tuple[float, float] | None:
    if private.modes_on() or _bytes(call) > _MOST_BYTES:
        return None
    with torch.no_grad(), torch.inference_mode(False), private.DisableTorchFunction(), warnings.catch_warnings():
        # What torch has to say of these calls, the program's own have heard. And where it raises, all would end.
        warnings.simplefilter("ignore")
        ways = [_made(call, dtype) for dtype in (torch.float64, torch.float32)]
        taken: tuple[list[float], list[float]] = ([], [])
        for args, kwargs in ways:
            call[0](*args, **kwargs)
        end = time.thread_time() + _EACH
        while len(taken[0]) < _ROUNDS[0] or (len(taken[0]) < _ROUNDS[1] and time.thread_time() < end):
            for times, (args, kwargs) in zip(taken, ways, strict=True):
                start = time.perf_counter()
                call[0](*args, **kwargs)
                times.append(time.perf_counter() - start)
    # The least: what others do on a busy machine only adds to it.
    return min(taken[0]), min(taken[1])


def _made(call: Call, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    # Its own numbers: the program's generators must not be drawn from.
    chance = torch.Generator(device="cpu").manual_seed(0)
    return _build(call[1], dtype, chance), dict(_build(call[2], dtype, chance))


def _build(form: Any, dtype: torch.dtype, chance: torch.Generator) -> Any:
    kind, value = form[0], form[1]
    if kind == _TENSOR:
        return _tensor(form, dtype, chance)
    if isinstance(kind, bool):
        found = [_build(one, dtype, chance) for one in value]
        return found if kind else tuple(found)
    return dtype if value is torch.float64 else value


def _tensor(form: Any, dtype: torch.dtype, chance: torch.Generator) -> torch.Tensor:
    _, shape, stride, own = form
    extent = _extent(shape, stride)
    if own is torch.float64:
        flat = torch.rand(extent, dtype=dtype, device="cpu", generator=chance)
    else:
        # Indices: the first row is always there.
        flat = torch.zeros(extent, dtype=own, device="cpu")
    # In its own layout: a transposed or an expanded operand may take another way.
    return flat.as_strided(shape, stride)


def _extent(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0


def _bytes(form: Any) -> int:
    if isinstance(form, tuple):
        if len(form) == 4 and form[0] == _TENSOR:
            return _extent(form[1], form[2]) * int(form[3].itemsize)
        return sum(_bytes(one) for one in form)
    return 0
