"""The cheap question never misses what the exact one finds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchvet.probes.base.graphs import storages_of
from torchvet.probes.internals.finite import is_finite, numeric, suspicious, which_not

BAD = (math.nan, math.inf, -math.inf)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_one_bad_element_is_seen(dtype: torch.dtype, value: float, size: int) -> None:
    tensor = torch.ones(size, dtype=dtype)
    assert is_finite(tensor) and not suspicious([tensor])
    tensor[size // 2] = value
    assert not is_finite(tensor) and suspicious([torch.ones(3), tensor])


@pytest.mark.parametrize("where", [0, 31, 32, 69, 70])
def test_one_bad_gradient_is_seen_among_many_small_and_large_ones(where: int) -> None:
    gradients = [*(torch.ones(5) for _ in range(70)), torch.ones(100, 100), torch.empty(0)]
    assert not suspicious(gradients)
    gradients[where].view(-1)[-1] = math.nan
    assert suspicious(gradients)


def test_infinities_of_both_signs_do_not_cancel() -> None:
    assert not is_finite(torch.tensor([math.inf, -math.inf, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_sum_that_overflows_is_no_proof(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    assert is_finite(torch.full((100,), largest, dtype=dtype))


def test_what_has_no_values_is_fine() -> None:
    for tensor in (torch.empty(0), torch.ones(3, dtype=torch.int64), torch.ones(2, device="meta")):
        assert is_finite(tensor) and not numeric(tensor)
    assert not suspicious([]) and not suspicious([torch.empty(0), torch.ones(2)])


def test_gradients_of_several_kinds_are_all_looked_at() -> None:
    kinds = [torch.ones(3, dtype=d) for d in (torch.float16, torch.float32, torch.float64)]
    assert not suspicious(kinds)
    kinds[1][0] = math.nan
    assert suspicious(kinds)


def test_what_cannot_be_read_as_one_tensor_is_passed_by() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.full((3, 3), math.nan)])
    assert is_finite(nested) and not numeric(nested)
    asked: list[bool] = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        asked.append(is_finite(x.sum()))
        return x.pow(2).sum()

    torch.func.vmap(torch.func.grad(loss))(torch.full((4, 3), math.nan))
    assert asked == [True]


def test_what_is_traced_has_no_values() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inside = torch.ones(2)
        assert is_finite(inside) and is_finite(torch.ones(())) and not numeric(inside)
    assert mode is not None and is_finite(inside)
    seen = []
    make_fx(lambda x: seen.append(is_finite(x.sum())) or x.sum())(torch.ones(2))
    assert seen == [True]
    assert numeric(torch.ones(2))


class Spread(torch.Tensor):
    """A tensor of which this rank has a part, as DTensor is one: operators on the whole would wait for the others."""

    _local_tensor: torch.Tensor

    @staticmethod
    def __new__(cls, part: torch.Tensor) -> Spread:
        made = torch.Tensor._make_wrapper_subclass(cls, (2 * len(part),), dtype=part.dtype)
        made._local_tensor, made.device_mesh = part, "a mesh"
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_local_tensor", "device_mesh"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} would wait for the other ranks")


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_of_a_tensor_that_is_spread_over_ranks_only_the_part_is_read(value: float) -> None:
    spread, plain = Spread(torch.tensor([1.0, value])), torch.ones(3)
    healthy = not math.isnan(value)
    for gradients in ([spread, plain], [plain, spread]):
        assert suspicious(gradients) is not healthy
        assert (which_not(gradients) == []) is healthy
    assert is_finite(spread) is healthy


def test_the_storages_of_a_spread_tensor_are_those_of_its_part() -> None:
    part = torch.ones(4)
    assert [s._cdata for s in storages_of(Spread(part))] == [part.untyped_storage()._cdata]
