"""What a step computes twice is told by the two lines that lead to it, whatever evaluations lie between."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import ComputedAgain

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(1200, 64), torch.randint(8, (1200,)))

def loss_of(x, y):
    return nn.functional.cross_entropy(model(x), y)

def closure_for(x, y):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        return loss
    return closure

def train(x, y):
{body}

def evaluate():
    model.eval()
    with torch.no_grad():
        for x, y in torch.utils.data.DataLoader(data, batch_size=300):
            loss_of(x, y).item()
    model.train()

for epoch in range(6):
    for x, y in torch.utils.data.DataLoader(data, batch_size=150):
        train(x, y)
    evaluate()
"""
TWICE = {
    "a closure": ("closure = closure_for(x, y)", "loss = closure()", "optimizer.step(closure)", "return loss.item()"),
    "for the log": (
        "optimizer.zero_grad()", "loss_of(x, y).backward()", "shown = loss_of(x, y).item()", "optimizer.step()",
    ),
    "for a metric": (
        "optimizer.zero_grad()", "loss_of(x, y).backward()", "right = model(x).argmax(1) == y", "optimizer.step()",
    ),
}  # fmt: skip
ONCE = {
    "the closure's own loss": ("closure = closure_for(x, y)", "return optimizer.step(closure).item()"),
    "another batch": (
        "optimizer.zero_grad()", "loss_of(x, y).backward()", "loss_of(x + 0.1, y).item()", "optimizer.step()",
    ),
    "after the step": (
        "optimizer.zero_grad()", "loss_of(x, y).backward()", "optimizer.step()", "return loss_of(x, y).item()",
    ),
    "sharpness": (
        "closure_for(x, y)()", "with torch.no_grad():", "    for p in model.parameters():",
        "        p.add_(0.01 * p.grad)", "optimizer.step(closure_for(x, y))",
    ),
    "dropout": (
        "optimizer.zero_grad()", "dropped = nn.functional.dropout", "loss_of(dropped(x), y).backward()",
        "loss_of(dropped(x), y).item()", "optimizer.step()",
    ),
    "micro-batches": (
        "optimizer.zero_grad()", "loss_of(x[:75], y[:75]).backward()", "loss_of(x[75:], y[75:]).backward()",
        "optimizer.step()",
    ),
}  # fmt: skip


def seen(folder: Path, lines: tuple[str, ...], optimizer: str = "SGD") -> list[ComputedAgain]:
    body = "\n".join(f"    {line}" for line in lines)
    forked(PROGRAM.replace("{body}", body).replace("{optimizer}", optimizer), folder)
    every = read(folder / RECORDING).ranks[0].latest(ComputedAgain, "id")
    return [one for one in every if one.steps >= 3 and one.steps >= 0.8 * (one.sampled - 1)]


@pytest.mark.parametrize("name", TWICE)
def test_two_lines_that_lead_to_the_same(tmp_path: Path, name: str) -> None:
    text = PROGRAM[: PROGRAM.index("{body}")].count("\n") + 1
    found = seen(tmp_path, TWICE[name])
    assert found
    for one in found:
        assert one.first_at is not None and one.again_at is not None
        assert (one.first_at.line, one.again_at.line) == (text + 1, text + 2)
        assert one.within > 0.9 * one.seconds


@pytest.mark.parametrize("name", ONCE)
def test_what_is_computed_once_for_all_that_it_looks_like(tmp_path: Path, name: str) -> None:
    assert seen(tmp_path, ONCE[name]) == []


def test_lines_searches_by_closures(tmp_path: Path) -> None:
    """LBFGS calls its closure many times, each with other weights. What it computes twice itself takes next to no time:
    on a slow machine that is heard as well."""
    found = seen(tmp_path, ("optimizer.step(closure_for(x, y))",), "LBFGS")
    assert all(one.seconds < 0.05 * one.passes and not one.led_back for one in found)
