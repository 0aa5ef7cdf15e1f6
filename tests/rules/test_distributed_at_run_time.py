"""What wrapped models and samplers do in a run that resembles a fault, in one process that is a group of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

HEAD = """
import random
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 1)

    def forward(self, x, layers=4):
        for layer in self.body[:layers]:
            x = layer(x).tanh()
        return self.head(x)


data = TensorDataset(torch.randn(64, 8))
"""

TWICE = (
    HEAD
    + """
model = DistributedDataParallel(Net())
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
def both():
    optimizer.zero_grad()
    for _ in range(2):
        loss = model(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
    return loss
def twice():
    optimizer.zero_grad()
    real = model(torch.randn(16, 8)).pow(2).mean()
    real.backward()
    fake = model(torch.randn(16, 8)).mean()
    fake.backward()
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(16, 8)).pow(2).mean()
    loss.backward()
    return loss
for step in range(30):
    {step}
"""
)


@pytest.mark.parametrize(
    ("optimizer", "step", "expected"),
    [
        ("SGD", "both(); optimizer.step()", True),
        ("SGD", "twice(); optimizer.step()", False),
        ("SGD", "closure(); optimizer.step()", False),
        ("LBFGS", "optimizer.step(closure)", False),
    ],
)
def test_passes_of_one_line_before_a_step_are_an_accumulation(
    optimizer: str, step: str, expected: bool, tmp_path: Path
) -> None:
    """Two losses of a step go backward on lines of their own; LBFGS needs each pass of its closure averaged."""
    found = forked(TWICE.format(optimizer=optimizer, step=step), tmp_path)
    assert found is not None
    assert [f["evidence"] for f in found if f["code"] == "DST105"] == ["observed"] * expected


UNUSED = (
    HEAD
    + """
model = DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(16, 8), {layers}).pow(2).mean().backward()
    optimizer.step()
"""
)


@pytest.mark.parametrize(("layers", "expected"), [("4", True), ("1 + step % 4", False)])
def test_layers_that_are_dropped_now_and_then_need_the_search(layers: str, expected: bool, tmp_path: Path) -> None:
    found = forked(UNUSED.format(layers=layers), tmp_path)
    assert found is not None
    assert [f["severity"] for f in found if f["code"] == "DST104"] == ["info"] * expected


EPOCHS = (
    HEAD
    + """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training, held_out = (DistributedSampler(data, num_replicas=2, rank=0) for _ in range(2))
batches = DataLoader(data, batch_size=8, sampler=training)
others = DataLoader(data, batch_size=8, sampler=held_out)
for epoch in range(4):
    {before}
    model.train()
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    model.eval()
    for (x,) in others:
        model(x).detach()
"""
)


@pytest.mark.parametrize(
    ("before", "expected"), [("pass", True), ("getattr(training, 'set_' + 'epoch')(epoch)", False)]
)
def test_only_a_training_must_be_told_its_epoch(before: str, expected: bool, tmp_path: Path) -> None:
    """An evaluation goes through another sampler, which is never told and need not be."""
    found = forked(EPOCHS.format(before=before), tmp_path)
    assert found is not None
    seen = [f for f in found if f["code"] == "DST107" and f["evidence"] == "observed"]
    assert len(seen) == expected
    assert not [f for f in found if f["code"] == "DST107" and f["severity"] != "info" and f not in seen]
