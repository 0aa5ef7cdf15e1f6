"""Faults of training that set in after the first steps, or whose optimizer is gone at the end, and what resembles
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1)), nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.body(x))
def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
def fit(model, steps, parameters=None):
    train(model, torch.optim.Adam(parameters or model.parameters(), lr=0.01), steps)
model = Net()
"""


def told(program: str, folder: Path, code: str) -> list[tuple[str, str]]:
    """The severity of a rule's findings at warning or above, each with the text of its line."""
    text = HEAD + program
    found = forked(text, folder)
    assert found is not None
    mine = [f for f in found if f["code"] == code and f["severity"] != "info"]
    return [(f["severity"], text.splitlines()[f["location"]["line"] - 1].strip()) for f in mine]


OWNED = {
    "replaced after 40 steps": (
        "rule = torch.optim.Adam(model.parameters(), lr=0.01)\ntrain(model, rule, 40)\n"
        "model.head = nn.Linear(16, 1)\ntrain(model, rule, 60)",
        [("error", "rule = torch.optim.Adam(model.parameters(), lr=0.01)")],
    ),
    "an optimizer that is gone at the end": (
        "fit(model, 80, [*model.head.parameters()])",
        [("warning", "train(model, torch.optim.Adam(parameters or model.parameters(), lr=0.01), steps)")],
    ),
    "a new optimizer after the replacement": (
        "rule = torch.optim.Adam(model.parameters(), lr=0.01)\ntrain(model, rule, 40)\n"
        "model.head = nn.Linear(16, 1)\n"
        "rule.add_param_group({'params': model.head.parameters()})\ntrain(model, rule, 60)",
        [],
    ),
    "first the one part, then the other": (
        "fit(model, 40, [*model.body.parameters()])\nfit(model, 40, [*model.head.parameters()])\n"
        "fit(model, 40, [*model.body.parameters()])",
        [],
    ),
    "the rest frozen": (
        "model.body.requires_grad_(False)\nfit(model, 80, [*model.head.parameters()])",
        [],
    ),
}


@pytest.mark.parametrize("case", OWNED.values(), ids=OWNED)
def test_parameters_without_an_optimizer(case: tuple[str, list[tuple[str, str]]], tmp_path: Path) -> None:
    program, expected = case
    assert told(program, tmp_path, "TRN105") == expected


MODES = """
first, second = Net().body, nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 1))
rule = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
def judge():
    first.eval()
    second.eval()
    with torch.no_grad():
        second(first(torch.randn(16, 8)))
for epoch in range(6):
    first.train()
    {again}
    train(lambda x: second(first(x)), rule, 20)
    judge()
"""


@pytest.mark.parametrize(
    ("again", "expected"),
    [("pass", [("warning", "second.eval()")]), ("second.train()", []), ("second.apply(lambda m: m.train())", [])],
)
def test_one_of_two_models_stays_in_eval_mode(again: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    assert told(MODES.format(again=again), tmp_path, "TRN103") == expected
