"""TRN104 on parameters behind a reentrant checkpoint that no gradient enters, and on checkpoints that are entered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from observed_fixes import fixed_lines

from torchvet.finding import About

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
stem, block, head = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 1)
stem.requires_grad_({stem})
unused = nn.Linear(2, 2)
parameters = [p for one in (stem, block, head{more}) for p in one.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(parameters, lr=0.01)
options = {{"use_reentrant": {reentrant}}}
for step in range(24):
    x = stem(torch.randn(4, 8))
    x = {run}
    optimizer.zero_grad()
    head(x).square().mean().backward()
    optimizer.step()
    {after}
"""
NESTED = "checkpoint(lambda x: checkpoint(block, x, **options), x, **options)"
CHECKPOINT = "checkpoint(block, x, **options)"


def found(
    folder: Path, stem: bool = False, reentrant: bool = True, run: str = CHECKPOINT, more: str = "", after: str = ""
) -> dict[str, Any] | None:
    """The finding of a run of it."""
    findings = forked(PROGRAM.format(stem=stem, reentrant=reentrant, run=run, more=more, after=after), folder)
    assert findings is not None
    return next((one for one in findings if one["code"] == "TRN104"), None)


def test_none_of_the_inputs_requires_a_gradient(tmp_path: Path) -> None:
    one = found(tmp_path)
    assert one is not None and one["severity"] == "warning" and "use_reentrant=True" in one["cause"]
    assert one["location"]["line"] == 12 and [other["line"] for other in one["related"]] == [15]


def test_another_part_may_have_no_gradient_for_a_reason_of_its_own(tmp_path: Path) -> None:
    one = found(tmp_path, more=", unused")
    assert one is not None and one["severity"] == "warning"
    assert one["message"].startswith("4 of 6 ") and one["cause"].startswith("2 of them run within")


@pytest.mark.parametrize(
    "changed",
    [
        {"after": "with torch.no_grad(): block(x)"},
        {"after": "head(checkpoint(block, torch.ones(4, 8, requires_grad=True), **options)).sum().backward()"},
        {"run": NESTED},
    ],
    ids=["evaluated without a checkpoint", "entered in another pass", "nested"],
)
def test_other_passes_do_not_hide_it(tmp_path: Path, changed: dict[str, Any]) -> None:
    one = found(tmp_path, **changed)
    assert one is not None and one["severity"] == "warning" and "use_reentrant=True" in one["cause"]


@pytest.mark.parametrize(
    "changed",
    [
        {"stem": True, "run": NESTED},
        {"stem": True},
        {"reentrant": False},
        {"run": "checkpoint(block, x.requires_grad_(), **options)"},
    ],
)
def test_a_checkpoint_that_gradients_enter(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert found(tmp_path, **changed) is None


def test_gradients_that_are_switched_off_elsewhere_are_no_checkpoint(tmp_path: Path) -> None:
    one = found(tmp_path, run="(torch.no_grad()(block)(x) + checkpoint(torch.tanh, x, **options))")
    assert one is not None and "use_reentrant" not in one["cause"]


@pytest.mark.parametrize("given", ["use_reentrant=True", '**{"use_reentrant": True}'])
def test_the_setting_is_changed(given: str) -> None:
    text = f"from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, {given})  # HERE\n"
    about = About(variant="behind a reentrant checkpoint")
    _, added = fixed_lines("TRN104", text, "# HERE", about=about)
    assert [one.split("  #")[0] for one in added] == [f"x = checkpoint(block, x, {given.replace('True', 'False')})"]
