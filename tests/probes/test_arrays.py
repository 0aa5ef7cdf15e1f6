"""NumPy's arrays lead to the tensors whose memory they show, and have memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from looking import key_of, walked

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.memory import census
from torchvet.probes.objects import arrays


def holding(**named: Any) -> Any:
    """What a census counts below a name of this function."""
    kept = named["kept"]
    found = census.CensusTaker(KnownMemory(), 10.0).take(1, "training", Ledger())
    assert kept is not None
    return next((h for h in found.holdings if h.name == "kept" and h.scope.endswith("holding")), None)


def test_an_array_leads_to_the_tensor_that_it_views() -> None:
    tensor = torch.zeros(4, 4)
    for array in (tensor.numpy(), tensor.numpy().T, tensor.numpy()[:2]):
        with walked(root=[array]) as walk:
            assert {key_of(t) for t in walk.tensors} == {key_of(tensor)}


def test_arrays_in_arrays_of_objects_are_found() -> None:
    tensor = torch.zeros(4)
    objects = np.empty(2, dtype=object)
    objects[0] = {"inner": tensor}
    with walked(root=objects) as walk:
        assert [t is tensor for t in walk.tensors] == [True]


@pytest.mark.parametrize(
    ("array", "size", "shown"),
    [
        (np.zeros(100, np.float32), 400, 400),
        (np.zeros(100, np.float32)[:5], 400, 20),
        (np.zeros((10, 10), np.float32).T[1], 400, 40),
        (torch.zeros(100).numpy()[:5], 0, 20),
        (np.frombuffer(b"12345678", np.uint8), 0, 8),
    ],
    ids=["own", "view", "view of a view", "of a tensor", "of bytes"],
)
def test_the_memory_behind_an_array(array: Any, size: int, shown: int) -> None:
    assert arrays.memory(array)[1:] == (size, shown)


def test_a_census_counts_arrays_that_show_a_part_of_a_tensor() -> None:
    found = holding(kept=[torch.zeros(100).numpy()[:5] for _ in range(10)])
    assert (found.direct, found.visible, found.item_type) == (4000, 200, "ndarray")


def test_a_census_counts_the_memory_that_views_of_arrays_keep() -> None:
    found = holding(kept=[np.zeros(100, np.float32)[:5] for _ in range(10)])
    assert (found.direct, found.visible, found.tensors) == (4000, 200, 10)


def test_an_array_and_its_views_count_once() -> None:
    whole = np.zeros(100, np.float32)
    found = holding(kept=[whole, whole[:5], whole[5:]])
    assert found is None or found.direct == 0, "it belongs to `whole`"
