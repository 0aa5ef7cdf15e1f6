"""Operators by name. Tables of them are texts, which are shorter, and may name operators that this torch lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def names(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


def overloads(text: str) -> tuple[Any, ...]:
    """The operators of `aten` with these names, such as `add.Tensor`; `neg` stands for `neg.default`."""
    found = []
    for name in text.split():
        packet, _, overload = name.partition(".")
        operators = getattr(torch.ops.aten, packet, None)
        # Other versions of torch lack some operators or overloads; a table must not fail by that.
        found.append(getattr(operators, overload or "default", None))
    return tuple(operator for operator in found if operator is not None)


def bare_name(func: Any) -> str:
    """`aten.div_.Tensor` as `div_`, whoever's namespace it is in."""
    schema = getattr(func, "_schema", None)
    name = str(func) if schema is None else schema.name.partition("::")[2]
    return str(name).removeprefix("aten.").partition(".")[0]


def tensors_within(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among an operator's arguments or results."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_within(item)
    elif isinstance(value, dict):
        yield from tensors_within(list(value.values()))
