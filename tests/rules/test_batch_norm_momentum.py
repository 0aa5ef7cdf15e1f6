"""Models whose batch norm keeps the statistics of the last batch, and such as do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import fixed_lines

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum={momentum}), nn.ReLU(), nn.Linear(16, 1))
rule = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
whole = torch.randn(64, 8)
for step in range(60):
    x = {batch}
    loss = nn.functional.mse_loss(model.train()(x), x.sum(1, keepdim=True))
    rule.zero_grad()
    loss.backward()
    rule.step()
    if step % 10 == 9:
        with torch.no_grad():
            {evaluate}
"""


def told(folder: Path, momentum: str, batch: str = "torch.randn(16, 8)", evaluate: str = "model.eval()(whole)") -> str:
    """The severity and line of TRN125's finding."""
    found = forked(PROGRAM.format(momentum=momentum, batch=batch, evaluate=evaluate), folder)
    assert found is not None
    return " ".join(f"{f['severity']} {f['location']['line']}" for f in found if f["code"] == "TRN125")


def test_the_last_batch_s_statistics_in_an_evaluation(tmp_path: Path) -> None:
    assert told(tmp_path, "0.99") == "warning 5"


@pytest.mark.parametrize("momentum", ["0.1", "0.01", "None"])
def test_statistics_of_many_batches(momentum: str, tmp_path: Path) -> None:
    assert told(tmp_path, momentum) == ""


def test_statistics_that_do_not_move_or_are_not_used_are_a_note(tmp_path: Path) -> None:
    assert told(tmp_path, "0.9", batch="whole") == "info 5"
    assert told(tmp_path, "0.9", evaluate="pass") == "info 5"
    # One pass over all data before the evaluation takes the statistics anew.
    assert told(tmp_path, "1.0", evaluate="model(whole); model.eval()(whole)") == "info 5"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layer = nn.BatchNorm2d(8, momentum=0.99)", ["layer = nn.BatchNorm2d(8, momentum=0.01)"]),
        ("norm = partial(nn.BatchNorm2d, momentum=0.9)", ["norm = partial(nn.BatchNorm2d, momentum=0.1)"]),
        ("BN_MOMENTUM = 0.997", ["BN_MOMENTUM = 0.003"]),
        ("def block(width, bn_momentum=0.99): pass", ["def block(width, bn_momentum=0.01): pass"]),
        ("rule = optim.SGD(weights, lr=0.1, momentum=0.9)", []),
        ("layer = nn.BatchNorm2d(8, 1e-5, 0.95)", ["layer = nn.BatchNorm2d(8, 1e-5, 0.05)"]),
        ("layer = nn.BatchNorm2d(8, momentum=1.0)", []),
        ("plan = optim.lr_scheduler.OneCycleLR(rule, 0.1, 9, max_momentum=0.95)", []),
        ("momentum = 0.9", []),
        ("def follow(model, momentum=0.99): pass", []),
        ("layer = nn.BatchNorm2d(8, momentum=given)", []),
    ],
)  # fmt: skip
def test_the_share_that_is_kept_becomes_the_share_that_is_taken(text: str, expected: list[str]) -> None:
    assert fixed_lines("TRN125", text, text[:12])[1] == expected
