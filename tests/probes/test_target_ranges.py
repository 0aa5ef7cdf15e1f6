"""The range that a prediction cannot leave, read off its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchvet.probes.training.labels.ranges import Bound, bound_of, measured

INF = float("inf")
BOUNDED: dict[str, tuple[Callable[[Any], Any], Bound]] = {
    "relu": (F.relu, Bound("relu", 0.0, INF)),
    "relu6": (F.relu6, Bound("hardtanh", 0.0, 6.0)),
    "elu": (lambda x: F.elu(x, alpha=0.5), Bound("elu", -0.5, INF)),
    "logarithms": (F.logsigmoid, Bound("log_sigmoid", -INF, 0.0)),
    "one limit": (lambda x: x.clamp(max=2), Bound("clamp", -INF, 2.0)),
    "two limits": (lambda x: x.clamp(-1, 1), Bound("clamp", -1.0, 1.0)),
    "a square": (torch.square, Bound("pow", 0.0, INF)),
    "moved": (
        lambda x: x.sigmoid().T.reshape(2, 6)[:, ::2].unsqueeze(0).expand(3, 2, 3).flip(0).clone().double(),
        Bound("sigmoid", 0.0, 1.0),
    ),
    "split": (lambda x: x.tanh().chunk(2, 1)[1].squeeze(), Bound("tanh", -1.0, 1.0)),
    "stacked": (lambda x: torch.stack([x[0].relu(), x[1].relu()]), Bound("relu", 0.0, INF)),
}
FREE: dict[str, Callable[[Any], Any]] = {
    "a cube": lambda x: x**3,
    "a root of a cube": lambda x: x.abs() ** 1.5,
    "limits that are tensors": lambda x: x.clamp(torch.zeros(4), torch.ones(4)),
    "scaled": lambda x: 2 * x.tanh(),
    "half": lambda x: torch.cat([x.relu(), x]),
    "unlike": lambda x: torch.cat([x.relu(), x.tanh()]),
    "leaky": F.leaky_relu,
}


@pytest.mark.parametrize(("made", "bound"), BOUNDED.values(), ids=BOUNDED)
def test_operators_that_bound(made: Callable[[Any], Any], bound: Bound) -> None:
    found = bound_of(made(torch.randn(3, 4, requires_grad=True) * 1).grad_fn)
    assert found is not None and found.bound == bound


@pytest.mark.parametrize("made", FREE.values(), ids=FREE)
def test_operators_that_do_not(made: Callable[[Any], Any]) -> None:
    assert bound_of(made(torch.randn(3, 4, requires_grad=True) * 1).grad_fn) is None


def test_where_targets_lie() -> None:
    found = measured(torch.tensor([-3.0, -1.0, float("nan"), 0.5, 2.0, 4.0]), Bound("sigmoid", 0.0, 1.0))
    assert found is not None
    assert (found.targets, found.below, found.above) == (5, 2, 2)
    assert found.values == (-3.0, 4.0)
    assert found.floor == pytest.approx(9 + 1 + 1 + 9)


def test_targets_that_cannot_be_read() -> None:
    bound = Bound("relu", 0.0, INF)
    assert measured(torch.zeros(8, device="meta"), bound) is None
    assert measured(torch.zeros(4).to_sparse(), bound) is None
    assert measured(torch.full((4,), float("nan")), bound) is None
    assert measured(torch.zeros(0), bound) is None


def test_a_large_batch_is_seen_in_part() -> None:
    targets = torch.arange(1 << 18).reshape(512, 512).float() - (1 << 17)
    found = measured(targets.expand(3, 512, 512), Bound("relu", 0.0, INF))
    assert found is not None and 1 << 12 < found.targets <= 1 << 16
    assert found.below / found.targets == pytest.approx(0.49, abs=0.03)
