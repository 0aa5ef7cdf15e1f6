"""How many steps `fix --verify` runs where the user names none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchvet.commands import cli
from torchvet.workflows import repeat, verify_fix

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = {}
for step in range(130):
    loss = model(torch.randn(16, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 20:
        kept["best"] = model.state_dict()
model.load_state_dict(kept["best"])
print(f"loss {loss.item():.4f}")
"""


def test_what_shows_after_the_first_steps_is_run_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are loaded after the last step, of which the first run takes fewer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verify_fix, "LONGER", 0.0)
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    words = ["fix", "train.py", "TRN110", "--verify", "--unsafe-fixes", "-o", "report.json"]
    ended = CliRunner().invoke(cli, words, catch_exceptions=False)
    facts = json.loads(Path("report.json").read_text())["facts"]["fix"]
    assert [row["code"] for row in facts["proven"]] == ["TRN110"], ended.output
    assert facts["runs"] == 3 and facts["steps"] == 130
    assert f"{repeat.STEPS} steps have shown nothing to fix" in ended.stderr


def test_a_limit_of_the_user_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    CliRunner().invoke(cli, ["fix", "train.py", "TRN110", "--verify", "--steps", "40", "-o", "report.json"])
    report = json.loads(Path("report.json").read_text())
    facts = report["facts"]["fix"]
    assert facts["runs"] == 1 and facts["steps"] == 40 and not facts["proven"]
    # Nothing to fix is said of these steps alone.
    unseen = "the runs were stopped after 40 steps: later steps were not looked at"
    assert unseen in [one["reason"] for one in report["not_checked"]]


def test_the_steps_of_a_program_that_failed_are_not_those_of_the_fixed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        PROGRAM.replace("torch.randn(16, 8)", "torch.randn(4, 8, 4).permute(0, 2, 1).view(16, 8)"), "utf-8"
    )
    ended = CliRunner().invoke(cli, ["fix", "train.py", "OPS209", "--verify", "--unsafe-fixes", "--steps", "40"])
    assert "1 of 1 fix proven in 2 runs of 0 to 40 steps" in ended.output
    assert "none to compare: the program ended after 0 steps, and now makes 40" in ended.output
