"""Memory that rises in the middle of an evaluation is an occasion to count names, twice in each of two evaluations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.analysis.growth import gathered
from torchvet.probes.memory import gathering
from torchvet.recording import read
from torchvet.recording.records.base import StepKind

MB = 1 << 20


def looks(monkeypatch: pytest.MonkeyPatch, size: Callable[[int], int], *evaluations: int) -> list[tuple[int, int]]:
    """The evaluations and batches after which names are counted, where so much is in use after each batch."""
    one, found = gathering.Gathering(), []
    for batches in evaluations:
        for kind, steps in (("training", 3), ("evaluation", batches)):
            for step in range(1, steps + 1):
                monkeypatch.setattr(gathering, "_in_use", lambda step=step: 100 * MB + size(step))
                name: StepKind = "training" if kind == "training" else "evaluation"
                if one.boundary(name):
                    found.append((one.evaluation, one.batches))
    return found


def test_two_looks_in_each_of_two_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, lambda n: 8 * MB * n, 30, 30, 30) == [(1, 8), (1, 12), (2, 8), (2, 12)]
    assert looks(monkeypatch, lambda n: 2 * MB * n, 40) == [(1, 32), (1, 36)], "once it is large"
    assert looks(monkeypatch, lambda n: 8 * MB * n, 10, 30) == [(1, 8), (2, 8), (2, 12)], "over before the second"


@pytest.mark.parametrize("size", [
    lambda n: MB * n // 2, lambda n: 64 * MB if n > 1 else 0, lambda n: (n % 8) * 8 * MB, lambda n: -8 * MB * n,
], ids=["little", "at its start", "up and down", "freed"])  # fmt: skip
def test_what_does_not_rise_by_much_is_not_looked_into(
    size: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks(monkeypatch, size, 60, 60) == []


PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(64, 2048)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(512 * 24, 64))

def embed():
    model.eval()
    found = []
    with torch.no_grad():
        for (x,) in DataLoader(data, batch_size=512):
            found.append(model(x))
    model.train()
    return torch.cat(found)

for epoch in range(3):
    for (x,) in DataLoader(data, batch_size=256):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
    print(embed().mean().item())
"""


def test_what_an_evaluation_gathers_is_counted_batch_by_batch(tmp_path: Path) -> None:
    found = forked(PROGRAM, tmp_path)
    assert found is not None and not [one for one in found if one["code"].startswith("MEM1")], "its own affair"
    (rank,) = read(tmp_path / RECORDING).ranks
    (growth,) = gathered(rank)
    assert (growth.holding.name, growth.kind, growth.bytes_per_step) == ("found", "evaluation", 512 * 2048 * 4)
