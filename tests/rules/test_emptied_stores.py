"""Graphs that are kept until an epoch's end make a peak, and are found; what is meant to be kept for so long is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
critic = nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weigher = torch.optim.SGD(critic.parameters(), lr=0.1)

class Trainer:
    def __init__(self):
        self.kept = []
    def step(self):
        x = torch.randn(64, 32)
        out = model(x)
        loss = nn.functional.cross_entropy(out, x[:, :8].argmax(1))
        score = (critic(x) * out.detach().softmax(1)).sigmoid().mean()
        {each}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    def end(self):
        {end}
        self.kept.clear()

trainer = Trainer()
for epoch in range(2):
    for step in range(90):
        trainer.step()
    trainer.end()
"""
MEAN = "print(sum(k.sum().item() for k in self.kept) / len(self.kept))"


def told(each: str, end: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What is said of memory that grows."""
    found = forked(TRAINING.format(each=each, end=end), tmp_path)
    assert found is not None
    return [one for one in found if one["code"].startswith("MEM1")]


def test_graphs_that_are_kept_until_the_epoch_ends_are_found(tmp_path: Path) -> None:
    """Each has saved the batch, the softmax, and what the sigmoid gave."""
    (one,) = told("self.kept.append(score)", MEAN, tmp_path)
    assert (one["code"], one["severity"], one["holder"]["name"]) == ("MEM101", "warning", "trainer.kept")
    assert "empties it between epochs" in one["message"] and "more alive every step" in one["message"]
    assert one["measured"]["bytes_per_step"] == pytest.approx(64 * 4 * (32 + 8 + 8), rel=0.05)
    assert one["measured"]["exhausted_at_step"] is None


QUIET = {
    "numbers": ("self.kept.append(score.item())", "print(sum(self.kept))"),
    "detached": ("self.kept.append(score.detach())", MEAN),
    "predictions": ("self.kept.append(out.detach())", MEAN),
    "an episode": (
        "self.kept.append(score)",
        "total = torch.stack(self.kept).sum(); weigher.zero_grad(); total.backward(); weigher.step()",
    ),
}


@pytest.mark.parametrize(("each", "end"), QUIET.values(), ids=QUIET)
def test_what_is_meant_to_be_kept_until_then_is_no_fault(each: str, end: str, tmp_path: Path) -> None:
    assert told(each, end, tmp_path) == []
