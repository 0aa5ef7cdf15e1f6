"""State dicts of which a model takes nothing, and those of which it takes enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
def network():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = network()
    def forward(self, x):
        return self.module(x)
"""
TRAIN = """
rule = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    rule.zero_grad()
    loss.backward()
    rule.step()
"""
NOTHING = {
    "a prefix too many": (
        "model = network()\nmodel.load_state_dict(Wrapped().state_dict(), strict=False)",
        "`module.`",
    ),
    "a prefix too few": ("model = Wrapped()\nmodel.load_state_dict(network().state_dict(), strict=False)", "`module.`"),
    "the whole checkpoint": (
        "model = network()\nmodel.load_state_dict({'model': network().state_dict(), 'epoch': 3}, strict=False)",
        "names agree",
    ),
}
ENOUGH = {
    "strict": "model = network()\nmodel.load_state_dict(network().state_dict())",
    "a part": "model = network()\n"
    "model.load_state_dict({'0.weight': torch.zeros(16, 8), 'old.weight': torch.zeros(1)}, strict=False)",
    "only what is the model's": "model = network()\nmodel.load_state_dict({'0.bias': torch.zeros(16)}, strict=False)",
    "a second attempt": "model = network()\nkept = Wrapped().state_dict()\n"
    "left = model.load_state_dict(kept, strict=False)\n"
    "if left.missing_keys:\n"
    "    model.load_state_dict({k.removeprefix('module.'): v for k, v in kept.items()}, strict=False)",
    "nothing to load": "model = network()\nmodel.load_state_dict({}, strict=False)",
    "no parameters": "model = network()\nnn.ReLU().load_state_dict(network().state_dict(), strict=False)",
}


def told(program: str, folder: Path) -> list[tuple[str, str]]:
    """The text of the lines of TRN123's findings, and the advice."""
    text = HEAD + program + TRAIN
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    mine = [f for f in found if f["code"] == "TRN123"]
    return [(lines[f["location"]["line"] - 1].strip(), f["remedy"]["summary"]) for f in mine]


@pytest.mark.parametrize("case", NOTHING.values(), ids=NOTHING)
def test_nothing_taken(case: tuple[str, str], tmp_path: Path) -> None:
    program, names = case
    [(line, advice)] = told(program, tmp_path)
    assert line == program.splitlines()[1]
    assert names in advice


@pytest.mark.parametrize("program", ENOUGH.values(), ids=ENOUGH)
def test_enough_taken(program: str, tmp_path: Path) -> None:
    assert told(program, tmp_path) == []
