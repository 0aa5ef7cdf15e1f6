"""Tensors of the differences of all pairs are followed to where they are summed up; both ways are timed after a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked
from hosts import ByHand
from torch.nn import functional

from torchvet.probes.time import real_time
from torchvet.probes.time.pairs import tables, ways
from torchvet.probes.time.pairs.forms import Form, Shape
from torchvet.recording import read
from torchvet.recording.records.timing import Distance, PairDifferences
from torchvet.recording.records.training import Unchecked

Tensor = torch.Tensor
X, Y = torch.rand(64, 8), torch.rand(48, 8)
EACH, OF_ROW = torch.rand(8), torch.rand(64, 1, 1)


def pairs(x: Tensor, y: Tensor) -> Tensor:
    return x.unsqueeze(1) - y.unsqueeze(0)


def expanded(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.unsqueeze(1).expand(64, 48, 8), y.unsqueeze(0).expand(64, 48, 8)


def by_itself(x: Tensor, y: Tensor) -> Tensor:
    difference = pairs(x, y)
    return torch.sum(difference * difference, -1)


def also_summed(x: Tensor, y: Tensor) -> Tensor:
    difference = pairs(x, y)
    return difference.square().sum(-1) + difference.sum(-1)


def also_read(x: Tensor, y: Tensor) -> Tensor:
    difference = pairs(x, y)
    return difference.square().sum(-1) + difference[..., 0]


def in_place(x: Tensor, y: Tensor) -> Tensor:
    return pairs(x, y).detach().mul_(2.0).pow_(2).sum(2)


DISTANCES: dict[Distance, list[Callable[[Tensor, Tensor], Any]]] = {
    "squares": [
        by_itself,
        in_place,
        lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1),
        lambda x, y: pairs(x, y).abs().square().mean(2, keepdim=True),
        lambda x, y: (pairs(x, y) / EACH).square().sum(-1),
        lambda x, y: (EACH * pairs(x, y) ** 2).sum(-1),
        lambda x, y: functional.mse_loss(*expanded(x, y), reduction="none").sum(-1),
        lambda x, y: (x.t()[:, :, None] - y.t()[:, None]).pow(2).sum(0),
    ],
    "root": [
        lambda x, y: pairs(x, y).norm(dim=-1),
        lambda x, y: torch.linalg.vector_norm(-pairs(x, y), dim=-1),
        lambda x, y: functional.pairwise_distance(x[:, None], y[None]),
        lambda x, y: torch.sub(*expanded(x, y)).norm(2, -1),
    ],
    "absolute": [
        lambda x, y: pairs(x, y).abs().mean(-1),
        lambda x, y: pairs(x, y).norm(1, -1),
        lambda x, y: functional.l1_loss(*expanded(x, y), reduction="none").sum(-1),
    ],
}
OTHERWISE: list[Callable[[Tensor, Tensor], Any]] = [
    also_summed,
    also_read,
    lambda x, y: pairs(x, y),
    lambda x, y: pairs(x, y).sum(-1),
    lambda x, y: pairs(x, y).square().sum(),
    lambda x, y: pairs(x, y).square().sum((1, 2)),
    lambda x, y: pairs(x, y).norm(3, -1),
    lambda x, y: pairs(x, y).relu().square().sum(-1),
    lambda x, y: (pairs(x, y).square() * (pairs(x, y) > 0)).sum(-1),
    lambda x, y: (pairs(x, y) * torch.rand(64, 48, 1)).square().sum(-1),
    lambda x, y: (pairs(x, y) * OF_ROW).square().sum(-1),
    lambda x, y: pairs(x, y) @ EACH,
    lambda x, y: functional.huber_loss(*expanded(x, y), reduction="none").sum(-1),
    lambda x, y: (pairs(x, y) + 1.0).square().sum(-1),
    lambda x, y: (1.0 / pairs(x, y)).square().sum(-1),
    lambda x, y: torch.sub(x[:, None], y[None], alpha=2).square().sum(-1),
    lambda x, y: pairs(x, y).square().sum(-1, dtype=torch.float64),
    lambda x, y: torch.stack([pairs(x, y).square().sum(-1), pairs(x, y).relu().sum(-1)]),
    # No table of all pairs, or a small one.
    lambda x, y: (x.reshape(1, 512) - y.reshape(384, 1)).square().sum(-1),
    lambda x, y: (x.repeat(6, 8) - x.repeat(6, 8).mean(-1, keepdim=True)).square().sum(-1),
    lambda x, y: pairs(x[:9], y).square().sum(-1),
    lambda x, y: torch.cdist(x, y),
]


def seen(
    run: Callable[[Tensor, Tensor], Any], monkeypatch: pytest.MonkeyPatch, learned: bool = True, how: str = "finished"
) -> list[Any]:
    """What the probe writes of one step that runs so, forward and backward."""
    monkeypatch.setattr(real_time, "_A_STEP", 0.0)
    monkeypatch.setattr(ways, "_SECONDS", 0.0)
    host: Any = ByHand()
    host.elapsed, host.clock = float, SimpleNamespace(main_steps=1)
    probe = tables.PairDifferenceTables(host)
    probe.install()
    x, y = X.clone().requires_grad_(learned), Y.clone()
    host.ledger.enter()
    out = run(x, y)
    if isinstance(out, Tensor) and out.requires_grad:
        out.sum().backward()
    host.ledger.leave()
    assert host.ledger.broken is None
    probe.boundary(1, "optimizer")
    host.sampled_steps = 1
    probe.last_look(how, None)
    return list(host.written)


@pytest.mark.parametrize(("distance", "run"), [(name, run) for name, runs in DISTANCES.items() for run in runs])
def test_differences_that_are_only_summed_up(distance: Distance, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = seen(run, monkeypatch)
    assert (one.distance, one.rows, one.width) == (distance, (64, 48), 8)
    assert one.calls == one.sampled == 1 and one.forward > 0 and (one.backward > 0) is (run is not in_place)
    assert one.forward + one.backward <= one.every and not one.twice
    assert min(one.plain, one.product, one.subtracting) > 0


@pytest.mark.parametrize("run", OTHERWISE)
def test_differences_that_are_used_otherwise(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(run, monkeypatch) == []


def test_a_backward_pass_that_did_not_run_or_is_differentiated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(lambda x, y: by_itself(x, y).argmin(1), monkeypatch)[0].backward == 0

    def penalty(x: Tensor, y: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(by_itself(x, y).sum(), x, create_graph=True)
        return gradient.square()

    assert seen(penalty, monkeypatch)[0].twice


def test_gradients_of_expanded_operands_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of `expand` sums them up, and was made before the differences."""
    operators: list[str] = []
    original = tables.PairDifferenceTables._gradient_of

    def noted(self: Any, one: Any) -> Any:
        found = original(self, one)
        operators.extend(["seen"] if found is not None else [])
        return found

    monkeypatch.setattr(tables.PairDifferenceTables, "_gradient_of", noted)
    assert seen(lambda x, y: torch.sub(*expanded(x, y)).norm(dim=-1), monkeypatch) and operators


def test_what_belongs_to_the_distances_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for run, expected in (
        (by_itself, (False, False)),
        (lambda x, y: pairs(x, y).abs().mean(-1), (True, False)),
        (lambda x, y: (pairs(x, y) * EACH).norm(dim=-1), (False, True)),
        (lambda x, y: (pairs(x, y) / 2.0).square().mean(-1), (True, True)),
    ):
        (one,) = seen(run, monkeypatch)
        assert (one.mean, one.scaled) == expected


def test_after_an_error_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = seen(by_itself, monkeypatch, how="error")
    assert isinstance(one, Unchecked) and "1 line computed such differences" in one.reason


FORMS: list[tuple[Distance, Shape, Shape, tuple[str | Shape, ...], tuple[int, ...]]] = [
    ("squares", (9, 1, 5), (1, 7, 5), ("sub", "square", "sum"), (2,)),
    ("squares", (2, 9, 1, 5), (2, 1, 7, 5), ("sub", (1, 1, 1, 5), "square", "sum"), (3,)),
    ("squares", (5, 9, 1), (5, 1, 7), ("mse_loss", "sum"), (0,)),
    ("squares", (9, 1, 3, 4), (1, 7, 3, 4), ("sub", "square", "sum"), (2, 3)),
    ("root", (1, 9, 5), (7, 1, 5), ("sub", "norm"), (2,)),
    ("absolute", (9, 1, 5), (1, 7, 5), ("sub", "abs", "sum"), (2,)),
    ("absolute", (9, 1, 5), (1, 7, 5), ("sub", "linalg_vector_norm"), (2,)),
]


@pytest.mark.parametrize(("distance", "left", "right", "steps", "dims"), FORMS)
def test_each_way_computes_the_same(distance: Distance, left: Any, right: Any, steps: Any, dims: Any) -> None:
    form = Form(left, right, torch.float64, (True, True), steps, dims)
    given = ways._operands(form)
    expected = ways._plain(form, given, distance)
    for way in (ways._product, ways._subtracting):
        found = way(form, given, distance)
        # Rows of the left operand come first there.
        same = found if form.own[0] < form.own[1] else found.mT
        assert torch.allclose(same.reshape(expected.shape), expected), way


def test_of_many_rows_a_part_is_made() -> None:
    form = Form((4000, 1, 30), (1, 3000, 30), torch.float32, (True, True), ("sub", (1, 1, 30), "square", "sum"), (2,))
    part = ways._fitting(form)
    assert ways._bytes(part) <= ways._MOST_BYTES < 4 * ways._bytes(part)
    assert part.width == 30 and part.steps[1] == (1, 1, 30) and math.prod(part.rows) < 4000 * 3000
    wide = Form((2, 1, 1 << 24), (1, 2, 1 << 24), torch.float32, (True, True), ("sub", "square", "sum"), (2,))
    assert ways.timed(wide, "squares") is None


PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
net, centers = nn.Linear(16, 32), nn.Parameter(torch.randn(200, 32))
optimizer = torch.optim.SGD([*net.parameters(), centers], lr=0.01)
for step in range(30):
    rows = net(torch.randn(160, 16))
    loss = (rows.unsqueeze(1) - centers).pow(2).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_whole_run(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    (one,) = read(tmp_path / RECORDING).ranks[0].all(PairDifferences)
    assert (one.place.line, one.left, one.right) == (9, (160, 1, 32), (1, 200, 32))
    assert one.calls == one.sampled > 2 and one.dtype == "float32" and one.backward > 0
