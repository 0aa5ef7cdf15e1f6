"""A name is bound to what it was bound to before only if that has lived all the time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchvet.probes.objects import bindings
from torchvet.probes.objects.bindings import Binding


class Thing:
    """Anything of the program's."""


@pytest.fixture
def one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """All things are at one address, one after the other."""
    monkeypatch.setattr(bindings, "id", lambda _: 1, raising=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3),
        lambda: torch.ones(3, requires_grad=True).exp(),
        lambda: [torch.zeros(3), 1],
        lambda: {"x": torch.zeros(3)},
        lambda: ([torch.zeros(3)], "name"),
        lambda: Thing(),
        lambda: [Thing()],
    ],
    ids=["tensor", "graph", "list", "dict", "nested", "object", "list of objects"],
)
@pytest.mark.usefixtures("one_address")
def test_what_is_made_at_the_same_address_is_another_thing(make: Callable[[], Any]) -> None:
    one = make()
    first = Binding(one)
    assert Binding(one).lasts(first)
    del one
    assert not Binding(make()).lasts(first)


BUFFER = torch.arange(6.0)
KEPT = [torch.zeros(2), torch.ones(2)]


@pytest.mark.usefixtures("one_address")
@pytest.mark.parametrize(
    "drawn",
    [lambda n: BUFFER[n : n + 2], lambda n: [KEPT[n]]],
    ids=["a slice of what lasts", "a batch drawn from what lasts"],
)
def test_what_is_drawn_from_what_lasts_is_made_anew(drawn: Callable[[int], Any]) -> None:
    assert not Binding(drawn(1)).lasts(Binding(drawn(0)))


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3),
        torch.zeros(3).to_sparse(),
        [torch.zeros(3)],
        [],
        [1, 2],
        {"model": torch.nn.Linear(2, 2), "x": [torch.zeros(1)]},
        Thing(),
        torch.nn.Linear(2, 2),
        len,
        3,
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_lasts_lasts(value: Any) -> None:
    assert Binding(value).lasts(Binding(value))
    assert not Binding(value).lasts(None)


def test_a_list_lasts_while_it_grows() -> None:
    losses = [torch.zeros(1)]
    before = Binding(losses)
    losses += [torch.zeros(1) for _ in range(100)]
    assert Binding(losses).lasts(before)


def test_a_tensor_that_is_written_to_lasts() -> None:
    total = torch.zeros(3)
    before = Binding(total)
    total += torch.ones(3, requires_grad=True)
    assert Binding(total).lasts(before)


def test_nothing_is_kept_alive_and_tensors_can_be_swapped() -> None:
    thing, one, other = Thing(), torch.zeros(3), torch.ones(3)
    kept = [Binding([thing]), Binding(one), Binding([one, other])]
    torch.utils.swap_tensors(one, other)
    assert one.sum() == 3
    gone, storage = weakref.ref(thing), weakref.ref(one.untyped_storage())
    del thing, one
    gc.collect()
    assert gone() is None and storage() is None and kept


def test_a_deep_or_endless_value_takes_no_time() -> None:
    endless: list[Any] = []
    endless.append(endless)
    wide = [[[[i] for i in range(50)] for _ in range(50)] for _ in range(50)]
    for value in (endless, wide):
        assert Binding(value).lasts(Binding(value))
