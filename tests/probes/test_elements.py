"""A few elements of a tensor: those of its memory, without a copy, and none of what has no memory of its own."""

from __future__ import annotations

import pytest
import torch

from torchvet.probes.base.elements import some_of

ROWS = torch.arange(60.0).view(5, 12)


@pytest.mark.parametrize("tensor", [ROWS, ROWS.T, ROWS[1:3], torch.tensor(7.0)])
def test_they_are_elements_of_the_tensors_memory(tensor: torch.Tensor) -> None:
    for most in (1, 4, 100):
        some = some_of(tensor, most)
        assert some is not None and min(most, tensor.numel()) / 2 < len(some) <= most
        # Spread over all of it: the last one lies in the last of so many parts.
        assert len(some) * some.stride(0) >= tensor.numel()
        assert set(some.tolist()) <= set(tensor.flatten().tolist())
        assert some.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_all_of_a_dense_one_are_there() -> None:
    for tensor in (ROWS, ROWS.T, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)):
        some = some_of(tensor, 1000)
        assert some is not None and torch.equal(some.sort().values, tensor.flatten().sort().values)


class Own(torch.Tensor):
    """A program's own, which may do anything when it is sliced."""


@pytest.mark.parametrize(
    "tensor",
    [torch.empty(0), ROWS[:1].expand(4, 12), ROWS.to_sparse(), ROWS.as_subclass(Own), ROWS[:1, :1].expand(3, 3)],
)
def test_there_are_none_of_what_is_not_dense(tensor: torch.Tensor) -> None:
    assert some_of(tensor, 8) is None
