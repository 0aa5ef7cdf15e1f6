"""What makes a graph of a module gets the module's own: TorchScript's tracer, and exports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import torchvet


@pytest.fixture
def model(tmp_path: Path) -> Iterator[nn.Module]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with torchvet.watch(record=tmp_path / "run.vet"):
        yield model


def train(model: nn.Module, steps: int) -> None:
    rule = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(torch.ones(8, 4)).square().mean()
        rule.zero_grad()
        loss.backward()
        rule.step()


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
def test_a_module_is_traced_as_it_is(model: nn.Module, steps: int) -> None:
    train(model, steps)
    traced = torch.jit.trace(model, (torch.ones(8, 4),))  # type: ignore[no-untyped-call]
    kinds = [node.kind() for node in traced.inlined_graph.nodes() if node.kind().startswith("aten::")]
    assert kinds == ["aten::linear", "aten::relu", "aten::linear"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("steps", [0, 9])
def test_a_module_is_exported_as_it_is(model: nn.Module, steps: int, strict: bool) -> None:
    train(model, steps)
    graph = torch.export.export(model, (torch.ones(8, 4),), strict=strict).graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert called == ["aten.linear.default", "aten.relu.default", "aten.linear.default"]
    train(model, 3)
