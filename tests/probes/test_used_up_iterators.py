"""Whether an iterator has come to its end, told without going through it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import nn

from torchvet.probes.training.summing.used_up import is_used_up

MODEL = nn.Linear(2, 2)
MAKERS: dict[str, Callable[[], Iterator[Any]]] = {
    "parameters": MODEL.parameters,
    "named parameters": MODEL.named_parameters,
    "a filter": lambda: filter(lambda p: p.is_leaf, (p for p in MODEL.parameters() if p.requires_grad)),
    "a map": lambda: map(id, MODEL.parameters()),
    "a zip": lambda: zip(MODEL.parameters(), MODEL.parameters(), strict=False),
    "enumerated": lambda: enumerate(MODEL.parameters()),
    "a generator": lambda: (p for p in MODEL.parameters()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_end_is_known_and_nothing_is_taken(make: Callable[[], Iterator[Any]]) -> None:
    """Before, within and after."""
    one = make()
    assert not is_used_up(one)
    next(one)
    assert not is_used_up(one)
    assert len(list(one)) == 1
    assert is_used_up(one)


def test_what_is_made_of_one_that_is_used_up_is_so_too() -> None:
    """A filter that is made in each step over an iterator that is not."""
    params = MODEL.parameters()
    list(params)
    assert is_used_up(filter(None, params))
    assert is_used_up(p for p in params)


def test_what_may_go_on_is_not_used_up() -> None:
    """Iterators that do not say so, and generators of the program's own that were given one."""

    def both(one: Iterator[Any]) -> Iterator[Any]:
        yield from one
        yield 1

    params = MODEL.parameters()
    list(params)
    assert not is_used_up(both(params))
    assert not is_used_up(itertools.cycle([1]))
    assert not is_used_up(iter([]))
