"""Anomaly detection that is left on, and on only where a NaN is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
{before}
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
rule = torch.optim.Adam(model.parameters(), lr=0.01)
def train():
    for step in range(40):
        x = torch.randn(32, 8)
        with torch.autograd.set_detect_anomaly({when}):
            loss = model(x).square().mean()
            rule.zero_grad()
            loss.backward()
        rule.step()
train()
"""


def told(folder: Path, before: str = "", when: str = "torch.is_anomaly_enabled()") -> list[tuple[str, str]]:
    """The severity of the findings, and the text of their lines."""
    text = PROGRAM.format(before=before, when=when)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [(f["severity"], lines[f["location"]["line"] - 1].strip()) for f in found if f["code"] == "OPS306"]


def test_it_is_named_where_it_is_switched_on(tmp_path: Path) -> None:
    within = "with torch.autograd.set_detect_anomaly(True):"
    assert told(tmp_path, when="True") == [("warning", within)]


def test_once_for_the_whole_program(tmp_path: Path) -> None:
    switch = "torch.autograd.set_detect_anomaly(True)"
    text = PROGRAM.format(before=switch, when="torch.is_anomaly_enabled()")
    found = forked(text, tmp_path)
    assert found is not None and [f["severity"] for f in found if f["code"] == "OPS306"] == ["warning"]


@pytest.mark.parametrize("when", ["False", "step == 2", "step % 10 == 0"])
def test_off_or_for_some_steps_only_is_no_fault(when: str, tmp_path: Path) -> None:
    assert told(tmp_path, when=when) == []
