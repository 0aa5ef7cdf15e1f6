"""Describes the values of a tensor that an operation refused."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from torchvet.probes.base import frames
from torchvet.probes.crash import operands, positions
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level
from torchvet.recording.records.device import BadValue

_FIRST = 4


@dataclass
class Bounds:
    """What is allowed; for an index `high` is not."""

    low: float | None
    high: float | None
    what: str = ""
    by: str = ""
    ignored: int | None = None
    value: int | None = None
    whole: bool = False
    """Whether rows are meant: sums of the last dimension."""


def candidates(
    levels: list[Level], parts: Callable[[positions.Node, Level], list[ast.expr]]
) -> Iterator[tuple[str, torch.Tensor, Level]]:
    """Tensors with the values that the failing expressions were given, the innermost frame's first, to the program's
    own. `parts` chooses among an expression's operands."""
    for level in reversed(levels):
        node = level.expression()
        for part in parts(node, level) if node is not None else ():
            for text, tensor in operands.values_in(part, level.names):
                if readable(tensor):
                    yield text, tensor, level
        # Further out are the callers: their operands are other tensors.
        if level.whose == frames.USER:
            return


def readable(tensor: torch.Tensor) -> bool:
    """Whether its numbers can be had without running code of the program's. A simulated tensor's class says that it is
    torch's own."""
    return type(tensor).__module__ in ("torch", "torch.nn.parameter", "torchvet.simulate.tensors")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    # A simulated tensor keeps its numbers in a tensor of the CPU's, `host`.
    host = getattr(tensor, "host", tensor)
    return host.detach().cpu()


def fill(record: BadValue, bounds: Bounds, tensor: torch.Tensor, text: str, level: Level, names: Names) -> bool:
    """Describe a tensor's bad values in the record; False where it has none, or not the one that torch named."""
    numbers = on_host(tensor)
    if bounds.whole:
        # Each value may be allowed where their sum is not.
        # `multinomial` refuses a row without any weight.
        bad = numbers.sum(-1) <= 0
    else:
        bad = torch.isnan(numbers) | torch.isinf(numbers) if numbers.is_floating_point() else torch.zeros_like(numbers)
        bad = bad.bool()
        if bounds.low is not None:
            bad |= numbers < bounds.low
        if bounds.high is not None:
            # A probability may be as large as its bound, an index may not.
            bad |= numbers > bounds.high if numbers.is_floating_point() else numbers >= bounds.high
        if bounds.ignored is not None:
            # `ignore_index` is often -100, which would pass for the fault.
            bad &= numbers != bounds.ignored
    # Where torch has named the value it must be among the bad ones, or this is another tensor.
    if not bool(bad.any()) or (bounds.value is not None and not bool((numbers[bad] == bounds.value).any())):
        return False
    argument = text if level.whose != frames.USER else ""
    note(record, tensor, bad, names.placed(tensor, text).name, argument)
    return True


def note(record: BadValue, tensor: torch.Tensor, bad: torch.Tensor, name: str, argument: str = "") -> None:
    numbers = on_host(tensor)
    where = bad.nonzero()
    record.name, record.argument = name, argument or record.argument
    record.shape, record.device = tuple(int(n) for n in tensor.shape), str(tensor.device)
    record.count, record.total = int(bad.sum()), bad.numel()
    record.positions = [[int(n) for n in row] for row in where[:_FIRST].tolist()]
    # Where rows are meant `bad` has a dimension less, and single values are no fault of their own.
    if bad.shape == numbers.shape:
        record.values = [_number(v) for v in numbers[bad][:_FIRST].tolist()]
        record.nans = int(torch.isnan(numbers).sum()) if numbers.is_floating_point() else 0
    elif numbers.is_floating_point():
        record.nans = int(torch.isnan(numbers).sum())


def _number(value: float) -> float:
    """A number that JSON can carry: what is not finite is counted apart."""
    return float(value) if value == value and abs(value) != float("inf") else 0.0
