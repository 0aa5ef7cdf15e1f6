"""Models whose batch norm trains on batches of one sample: those that running statistics fit, and those that they do
not."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

from torchvet.recording.records.layers import SingleSamples
from torchvet.rules.training.trn116_batchnorm_of_one.rule import _misfit

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
norm = {norm}
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(8, 1, 1))
rule = torch.optim.Adam(model.parameters(), lr=0.002)
for step in range({steps}):
    clean = torch.randn({batch}, 1, 24, 24)
    image = clean + {differ} * torch.randn({batch}, 1, 1, 1)
    {train}
    loss = nn.functional.mse_loss(model(image), (clean > 0).float())
    rule.zero_grad()
    loss.backward()
    rule.step()
    if step % 30 == 29:
        with torch.no_grad():
            {evaluate}
"""
EVAL = "model.eval()(image)"


def told(
    folder: Path,
    norm: str = "nn.BatchNorm2d(8)",
    batch: str = "1",
    differ: float = 3.0,
    train: str = "model.train()",
    evaluate: str = EVAL,
    steps: int = 150,
) -> str:
    """The severity and line of TRN116's finding."""
    text = PROGRAM.format(norm=norm, batch=batch, differ=differ, train=train, evaluate=evaluate, steps=steps)
    found = forked(text, folder)
    assert found is not None
    return " ".join(f"{f['severity']} {f['location']['line']}" for f in found if f["code"] == "TRN116")


@pytest.mark.parametrize("norm", ["nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, momentum=None)"])
def test_samples_that_differ_one_by_one(norm: str, tmp_path: Path) -> None:
    assert told(tmp_path, norm) == "warning 12"


def test_batch_norm_without_weights(tmp_path: Path) -> None:
    assert told(tmp_path, "nn.BatchNorm2d(8, affine=False)") == "warning 12"


def test_a_model_that_never_evaluates_in_eval_mode_is_a_note(tmp_path: Path) -> None:
    assert told(tmp_path, evaluate="pass") == "info 12"
    assert told(tmp_path, evaluate="model(image)") == "info 12"


def test_a_model_that_evaluates_without_its_wrapper(tmp_path: Path) -> None:
    program = PROGRAM.replace("model = nn", "inner = nn").replace("rule =", "model = nn.Sequential(inner); rule =")
    given = {"norm": "nn.BatchNorm2d(8)", "batch": "1", "differ": 3.0, "train": "model.train()", "steps": 150}
    found = forked(program.format(**given, evaluate="inner.eval()(image)"), tmp_path)
    assert [f["severity"] for f in found or () if f["code"] == "TRN116"] == ["warning"]


def test_statistics_that_fit_each_sample(tmp_path: Path) -> None:
    assert told(tmp_path, differ=0.1) == ""


@pytest.mark.parametrize(
    "norm",
    [
        "nn.BatchNorm2d(8, track_running_stats=False)",
        "nn.InstanceNorm2d(8)",
        "nn.InstanceNorm2d(8, affine=True, track_running_stats=True)",
        "nn.GroupNorm(2, 8)",
    ],
)
def test_norms_without_statistics_of_batches(norm: str, tmp_path: Path) -> None:
    assert told(tmp_path, norm) == ""


def test_batches_of_several_samples(tmp_path: Path) -> None:
    assert told(tmp_path, batch="8") == ""
    # A last batch of one.
    assert told(tmp_path, batch="(1 if step % 10 == 9 else 8)") == ""


def test_frozen_layers(tmp_path: Path) -> None:
    assert told(tmp_path, train="model.train(); norm.eval()") == ""


def test_a_rollout_without_gradients(tmp_path: Path) -> None:
    rollout = "model.train()\n    with torch.no_grad(): model(image[:1] + 1)"
    assert told(tmp_path, batch="8", train=rollout) == ""


def test_a_large_momentum_is_another_rule_s(tmp_path: Path) -> None:
    assert told(tmp_path, "nn.BatchNorm2d(8, momentum=0.9)") == ""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"shift": 0.5, "looks": 6, "positions": 256}, "a sample's means"),
        ({"shift": 0.49, "looks": 6, "positions": 256}, ""),
        ({"shift": 0.9, "looks": 5, "positions": 256}, ""),
        ({"shift": 0.9, "looks": 6, "positions": 64}, ""),
        ({"effect": 0.3, "losses": 6}, "30 % higher"),
        ({"effect": -0.3, "losses": 6}, "30 % lower"),
        ({"effect": 0.2, "losses": 16}, ""),
        ({"effect": 0.9, "losses": 5}, ""),
    ],
)
def test_what_does_not_fit(fields: dict[str, float], expected: str) -> None:
    record = SingleSamples(model="Net", layer="1", **fields)  # type: ignore[arg-type]
    assert expected in _misfit(record) and bool(_misfit(record)) == bool(expected)
