"""Copies of a model that follow its weights, with and without its batch norm's statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import fixed_lines

PROGRAM = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
follower = copy.deepcopy(model).requires_grad_(False).eval()
rule = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(80):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    rule.zero_grad()
    loss.backward()
    rule.step()
    with torch.no_grad():
        {update}
        follower(x)
"""
LEFT = {
    "in place": "[a.lerp_(b, 0.1) for a, b in zip(follower.parameters(), model.parameters())]",
    "put in its place": "for a, b in zip(follower.parameters(), model.parameters()): a.data = 0.9 * a + 0.1 * b",
}
CARRIED = {
    "copied": "follower.load_state_dict(model.state_dict())",
    "averaged": "[a.copy_(b) for a, b in zip(follower.state_dict().values(), model.state_dict().values())]",
    "in train mode": "[a.lerp_(b, 0.1) for a, b in zip(follower.train().parameters(), model.parameters())]",
    "frozen": "pass",
}


def told(update: str, folder: Path) -> list[tuple[str, str]]:
    """The severity of TRN114's findings, and the text of their lines."""
    text = PROGRAM.format(update=update)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [(f["severity"], lines[f["location"]["line"] - 1].strip()) for f in found if f["code"] == "TRN114"]


@pytest.mark.parametrize("update", LEFT.values(), ids=LEFT)
def test_weights_without_statistics(update: str, tmp_path: Path) -> None:
    assert told(update, tmp_path) == [("warning", update)]


@pytest.mark.parametrize("update", CARRIED.values(), ids=CARRIED)
def test_statistics_that_are_carried_over_or_not_needed(update: str, tmp_path: Path) -> None:
    assert told(update, tmp_path) == []


LOOP = """\
for mine, theirs in zip(average.parameters(), self.model.parameters()):
    mine.mul_(0.9).add_(theirs, alpha=0.1)
error = average(x)
"""


def test_buffers_are_copied_after_the_loop_over_parameters() -> None:
    _, new = fixed_lines("TRN114", LOOP, "mine.mul_")
    assert new == [
        "for mine, theirs in zip(average.buffers(), self.model.buffers()):", "    mine.copy_(theirs)",
    ]  # fmt: skip
    other_way = "for b, a in zip(model.parameters(), average.parameters()):\n    a.data = 0.9 * a + 0.1 * b\n"
    assert fixed_lines("TRN114", other_way, "a.data")[1][-1] == "    a.copy_(b)"
    over = "for b, a in zip(model.parameters(), average.parameters()):\n"
    guarded = f"{over}    if b.requires_grad:\n        a.lerp_(b, 0.1)\n"
    assert fixed_lines("TRN114", guarded, "a.lerp_")[1][-1] == "    a.copy_(b)"
    assert fixed_lines("TRN114", f"{over}    update(a, b)\n", "update") == ([], [])


@pytest.mark.parametrize(
    "loop",
    [
        "for mine in average.parameters():",
        "for mine, theirs in zip(average.parameters(), weights):",
        "for mine, theirs in pairs:",
    ],
)
def test_other_loops_are_left_to_the_reader(loop: str) -> None:
    assert fixed_lines("TRN114", LOOP.replace(LOOP.splitlines()[0], loop), "mine.mul_") == ([], [])


def test_an_average_that_evaluates_once_an_epoch(tmp_path: Path) -> None:
    """Its passes lie far apart, and most of them in no step that is looked at."""
    update = LEFT["in place"]
    text = PROGRAM.format(update=update).replace("range(80)", "range(240)").replace("        follower(x)\n", "")
    text = text.replace("requires_grad_(False).eval()", "requires_grad_(False)")
    text += "    if step % 24 == 23:\n        with torch.no_grad():\n            follower.eval()(x)\n"
    found = forked(text, tmp_path)
    assert found is not None
    lines = [f["location"]["line"] for f in found if f["code"] == "TRN114"]
    assert [text.splitlines()[line - 1].strip() for line in lines] == [update]
