"""TRN137 in runs: what clip functions are given, and loaders that are asked after their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = nn.Linear(4, 1)
loader = DataLoader(torch.randn(48, 4), batch_size=4)
{before}
optimizer = torch.optim.SGD({given}, lr=0.1)
for epoch in range(2):
    {epoch}
    for x in {batches}:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        {clip}
        optimizer.step()
        print(f"loss {{loss.item():.6f}}")
"""
PLAIN = {"before": "", "given": "model.parameters()", "epoch": "pass", "batches": "loader", "clip": "pass"}
FAULTY = {
    "behind a name that source does not follow": (
        {
            "before": "kept = {'params': model.parameters()}",
            "given": "kept['params']",
            "clip": "nn.utils.clip_grad_norm_(kept['params'], 1.0)",
        },
        "clip_grad_norm_",
    ),
    "a filter, by value": (
        {
            "before": "ps = filter(lambda p: p.requires_grad, model.parameters())",
            "given": "ps",
            "clip": "nn.utils.clip_grad_value_(ps, 1.0)",
        },
        "clip_grad_value_",
    ),
    "a loader's iterator": ({"before": "batches = iter(loader)", "batches": "batches"}, "for x in batches"),
}
HEALTHY = {
    "made for each step": {"clip": "nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)"},
    "a filter for each step": {
        "clip": "nn.utils.clip_grad_norm_(filter(lambda p: p.requires_grad, model.parameters()), 1.0)"
    },
    "a loader's iterator for each epoch": {"epoch": "batches = iter(loader)", "batches": "batches"},
    "an empty list": {"clip": "nn.utils.clip_grad_norm_([], 1.0)"},
}


def _found(tmp_path: Path, changes: dict[str, str]):
    text = PROGRAM.format(**{**PLAIN, **changes})
    return text, [f for f in forked(text, tmp_path) or [] if f["code"] == "TRN137"]


def _graded(found: dict[str, Any]) -> tuple[int, str, str]:
    return found["location"]["line"], found["severity"], found["evidence"]


@pytest.mark.parametrize("changes,line", FAULTY.values(), ids=FAULTY)
def test_what_a_run_measures_is_a_warning(tmp_path: Path, changes: dict[str, str], line: str) -> None:
    """On the line that finds it used up."""
    text, found = _found(tmp_path, changes)
    expected = next(n for n, row in enumerate(text.splitlines(), 1) if line in row)
    assert [_graded(f) for f in found] == [(expected, "warning", "observed")]


@pytest.mark.parametrize("changes", HEALTHY.values(), ids=HEALTHY)
def test_healthy_runs_are_left_alone(tmp_path: Path, changes: dict[str, str]) -> None:
    """Nothing is said."""
    assert _found(tmp_path, changes)[1] == []


def test_an_optimizer_that_is_given_one_ends_the_program(tmp_path: Path) -> None:
    """The error is explained."""
    before = "ps = model.parameters()\nprint(sum(p.numel() for p in ps))"
    text, found = _found(tmp_path, {"before": before, "given": "ps"})
    expected = next(n for n, row in enumerate(text.splitlines(), 1) if "SGD(ps" in row)
    assert [_graded(f) for f in found] == [(expected, "error", "observed")]
