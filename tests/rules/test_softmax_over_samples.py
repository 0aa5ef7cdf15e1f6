"""NUM112: a softmax within a model that goes over the samples of a batch, and what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.score = nn.Linear(6, 16), nn.Linear(16, 1)
        self.heads, self.gate = nn.Linear(16, 4), nn.Linear(16, 3)
        self.slots, self.normal = nn.Parameter(torch.randn(5, 16)), nn.Softmax(dim=0)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, {classes})

    def forward(self, x):
        h = torch.tanh(self.encode(x))
        {body}
        return self.head(h)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{data}
for epoch in range(4):
    for x, y in loader:
        p = model(x)
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LINE = PROGRAM[: PROGRAM.index("{body}")].count("\n") + 1
SEQUENCES = "loader = DataLoader(TensorDataset(torch.randn(170, 12, 6), torch.randint(0, 3, (170,))), 16)"
EVEN = SEQUENCES.replace("170", "160")
ROWS = "loader = DataLoader(TensorDataset(torch.randn(170, 6), torch.randint(0, 3, (170,))), 16)"
TIME_FIRST = "loader = [(torch.randn(12, 16, 6), torch.randint(0, 3, (16,))) for _ in range(10)]"
CLASSES = "loss = F.cross_entropy(p, y)"
NUMBERS = "loss = F.mse_loss(p.squeeze(-1), y.float())"

OVER_SAMPLES = {
    "attention over frames": (SEQUENCES, "h = (F.softmax(self.score(h), dim=0) * h).sum(1)", CLASSES),
    "a module": (SEQUENCES, "h = (self.normal(self.score(h)) * h).sum(1)", CLASSES),
    "batches of one size": (EVEN, "h = (torch.softmax(self.score(h), 0) * h).sum(1)", CLASSES),
    "several heads": (
        SEQUENCES, "h = (self.heads(h).softmax(0)[..., None] * h[:, :, None]).sum(1).mean(1)", CLASSES,
    ),
    "scores by position": (
        SEQUENCES, "h = (self.score(h).squeeze(-1).softmax(0)[..., None] * h).sum(1)", CLASSES,
    ),
    "experts": (
        ROWS, "g = self.gate(h).softmax(0); h = sum(g[:, i : i + 1] * e(h) for i, e in enumerate(self.experts))",
        CLASSES,
    ),
    "a regression": (SEQUENCES, "h = (F.softmax(self.score(h), dim=0) * h).sum(1)", NUMBERS),
}  # fmt: skip
HARMLESS = {
    "over frames": (SEQUENCES, "h = (F.softmax(self.score(h), dim=1) * h).sum(1)", CLASSES),
    "time first": (TIME_FIRST, "h = (F.softmax(self.score(h), dim=0) * h).sum(0)", CLASSES),
    "time first, as long as the batch": (
        TIME_FIRST.replace("12, 16, 6", "16, 16, 6"), "h = (F.softmax(self.score(h), dim=0) * h).sum(0)", CLASSES,
    ),
    "time first, a label each": (
        "loader = [(torch.randn(12, 16, 6), torch.randn(12, 16)) for _ in range(10)]",
        "h = F.softmax(self.score(h), dim=0) * h", NUMBERS,
    ),
    "attention of all with all": (
        SEQUENCES, "h = ((h @ h.transpose(1, 2)).softmax(-1) @ h).mean(1)", CLASSES,
    ),
    "heads beside the batch": (
        TIME_FIRST.replace("12, 16, 6", "16, 32, 6"),
        "h = (F.softmax(self.score(h), dim=0) * h).sum(0).view(16, 2, 16).mean(1)", CLASSES,
    ),
    "experts of each sample": (
        ROWS, "g = self.gate(h).softmax(1); h = sum(g[:, i : i + 1] * e(h) for i, e in enumerate(self.experts))",
        CLASSES,
    ),
    "contrast": (ROWS, "h = (h @ h.t()).softmax(0) @ h", CLASSES),
    "a weight for each sample": (ROWS, "h = h * self.score(h).softmax(0) * len(h)", CLASSES),
    "a bag of instances": (
        "loader = [(torch.randn(20, 6), torch.randint(0, 3, (1,))) for _ in range(20)]",
        "h = (self.heads(h).softmax(0).mean(1, keepdim=True) * h).sum(0, keepdim=True)", CLASSES,
    ),
    "slots": (SEQUENCES, "a = (self.slots @ h.transpose(1, 2)).softmax(1); h = (a @ h).mean(1)", CLASSES),
    "weights of parts": (ROWS, "h = h @ (self.slots.t() @ self.slots).softmax(0)", CLASSES),
    "without a graph": (
        ROWS, "h = h * (1 + self.gate(h.detach()).detach().softmax(0).mean(1, keepdim=True))", CLASSES,
    ),
    "a class for each frame": (
        "loader = [(torch.randn(16, 12, 6), torch.randint(0, 3, (192,))) for _ in range(10)]",
        "h = (h + (F.softmax(self.score(h), dim=1) * h).sum(1, keepdim=True)).flatten(0, 1)", CLASSES,
    ),
}  # fmt: skip


def found(folder: Path, data: str, body: str, loss: str) -> list[tuple[str, int]]:
    text = PROGRAM.format(data=data, body=body, loss=loss, classes=1 if loss == NUMBERS else 3)
    findings = forked(text, folder)
    assert findings is not None
    return [(one["severity"], one["location"]["line"]) for one in findings if one["code"] == "NUM112"]


@pytest.mark.parametrize("case", OVER_SAMPLES.values(), ids=OVER_SAMPLES)
def test_weights_over_the_samples_are_found(case: tuple[str, str, str], tmp_path: Path) -> None:
    assert found(tmp_path, *case) == [("warning", LINE)]


def test_rows_that_are_always_the_same_are_a_note(tmp_path: Path) -> None:
    """As the nodes of one graph, which may be weighed against each other."""
    data = "whole = torch.randn(40, 6), torch.randint(0, 3, (40,))\nloader = [whole for _ in range(10)]"
    body = "h = h + (self.heads(h).softmax(0).mean(1, keepdim=True) * h).sum(0)"
    assert found(tmp_path, data, body, CLASSES) == [("info", LINE)]


@pytest.mark.parametrize("case", HARMLESS.values(), ids=HARMLESS)
def test_weights_of_one_sample_are_left(case: tuple[str, str, str], tmp_path: Path) -> None:
    assert found(tmp_path, *case) == []
