"""Schedules that lower the learning rate until nothing changes any more, and those that only end or pause."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
from torch.optim import lr_scheduler as schedules
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
rule = torch.optim.{rule}
schedule = schedules.{schedule}
for step in range(120):
    x = torch.randn(16, 8)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    rule.zero_grad()
    loss.backward()
    rule.step()
    {then}
"""
ADAM = "Adam(model.parameters(), lr=0.01)"
EACH, EPOCH = "schedule.step()", "schedule.step() if step % 20 == 19 else None"
GONE = {
    "a factor for epochs at each batch": (ADAM, "ExponentialLR(rule, 0.7)", EACH, "from 0.01 to"),
    "a length in other units": (ADAM, "LambdaLR(rule, lambda n: max(0.0, 1 - n / 30))", EACH, "from 0.01 to 0"),
    "a factor of 0": ("SGD(model.parameters(), lr=0.01)", "StepLR(rule, 2, gamma=0)", EPOCH, "from 0.01 to 0"),
    "a warm-up in whole numbers": (ADAM, "LambdaLR(rule, lambda n: n // 200)", EACH, "from 0.01 to 0"),
}
MEANT = {
    "to nothing at the very end": (ADAM, "LambdaLR(rule, lambda n: 1 - n / 120)", EACH),
    "a cosine": (ADAM, "CosineAnnealingLR(rule, 120)", EACH),
    "a cosine that begins again": (ADAM, "CosineAnnealingWarmRestarts(rule, 10)", EACH),
    "one cycle": (ADAM, "OneCycleLR(rule, 0.01, total_steps=121)", EACH),
    "low, and still learning": (ADAM, "LambdaLR(rule, lambda n: 1 if n < 20 else 1e-5)", EACH),
    "epochs": (ADAM, "ExponentialLR(rule, 0.1)", EPOCH),
    "a pause": (ADAM, "LambdaLR(rule, lambda n: float(not 40 <= n < 55))", EACH),
    "a metric": (ADAM, "ReduceLROnPlateau(rule, patience=5, min_lr=1e-5)", "schedule.step(1.0)"),
}


def told(rule: str, schedule: str, then: str, folder: Path) -> list[tuple[str, str, str]]:
    """The severity of TRN113's findings, what they say, and the text of their lines."""
    text = PROGRAM.format(rule=rule, schedule=schedule, then=then)
    found = forked(text, folder)
    assert found is not None
    mine = [f for f in found if f["code"] == "TRN113"]
    return [(f["severity"], f["message"], text.splitlines()[f["location"]["line"] - 1].strip()) for f in mine]


@pytest.mark.parametrize("case", GONE.values(), ids=GONE)
def test_nothing_changes_any_more(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    rule, schedule, then, fell = case
    [(severity, message, line)] = told(rule, schedule, then, tmp_path)
    assert severity == "warning"
    assert fell in message
    assert line == then


@pytest.mark.parametrize("case", MEANT.values(), ids=MEANT)
def test_a_rate_that_still_does_something(case: tuple[str, str, str], tmp_path: Path) -> None:
    assert told(*case, tmp_path) == []
