"""Values that are updated in place with gradients on: the line that does so is named and mended."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_runs import forked
from test_fixes_of_runs import fixed

from torchvet.finding import Finding
from torchvet.fixing.edits import apply
from torchvet.rules.memory._updates import ADVICE, UPDATED

PROGRAM = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
{before}
for step in range(60):
    x = torch.randn(32, 16)
    loss = (model(x).squeeze(-1) - x.sum(-1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{update}
"""

UPDATES = {
    "a dict, by two methods": (
        "shadow = {name: p.detach().clone() for name, p in model.named_parameters()}",
        "for name, p in model.named_parameters():\n    shadow[name].mul_(0.9).add_(p, alpha=0.1)",
        "shadow", "shadow[name].mul_(0.9).add_(p, alpha=0.1)",
    ),
    "a list, for each": (
        "shadow = [p.detach().clone() for p in model.parameters()]",
        "torch._foreach_lerp_(shadow, list(model.parameters()), 0.1)",
        "shadow", "torch._foreach_lerp_(shadow, list(model.parameters()), 0.1)",
    ),
    "another model's weights": (
        "teacher = copy.deepcopy(model).requires_grad_(False)",
        "for ours, theirs in zip(model.parameters(), teacher.parameters()):\n    theirs.lerp_(ours, 0.1)",
        "teacher", "theirs.lerp_(ours, 0.1)",
    ),
    "one number": (
        "class Baseline:\n    value = torch.zeros(())\n\nbaseline = Baseline()\nbaseline.value = torch.zeros(())",
        "baseline.value.mul_(0.9)\nbaseline.value.add_(0.1 * (model(x).mean() - loss))",
        "baseline", "baseline.value.add_(0.1 * (model(x).mean() - loss))",
    ),
}  # fmt: skip


def _told(program: str, folder: Path) -> list[dict[str, Any]]:
    found = forked(program, folder)
    assert found is not None
    return [f for f in found if f["code"] in ("MEM101", "MEM112", "MEM103")]


@pytest.mark.parametrize("name", UPDATES)
def test_the_line_of_the_update_is_named_and_fixed(name: str, tmp_path: Path) -> None:
    before, update, held, line = UPDATES[name]
    program = PROGRAM.format(before=before, update=textwrap.indent(update, "    "))
    (one,) = _told(program, tmp_path)
    assert (one["code"], one["severity"]) == ("MEM101", "warning")
    assert program.splitlines()[one["location"]["line"] - 1].strip() == line
    assert one["holder"]["name"].startswith(held) and one["remedy"]["summary"].startswith(ADVICE)
    path = str(tmp_path / "program.py")
    after, _ = apply({path: program}, [msgspec.convert(one, Finding)])
    assert f"    with torch.no_grad():\n{textwrap.indent(update, '        ')}" in after[path]
    assert not _told(after[path], tmp_path)


def test_updates_without_a_graph_are_none(tmp_path: Path) -> None:
    before = "shadow = [p.detach().clone() for p in model.parameters()]\nmean = torch.zeros(16)"
    update = """\
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    hidden = torch.relu(model[0](x))
    hidden.mul_(0.5)
    for s, p in zip(shadow, model.parameters()):
        s.mul_(0.9).add_(p.detach(), alpha=0.1)
    with torch.no_grad():
        torch._foreach_lerp_(shadow, list(model.parameters()), 0.1)"""
    assert not _told(PROGRAM.format(before=before, update=update), tmp_path)


@pytest.mark.parametrize(
    ("code", "at", "expected"),
    [
        ("for s, p in pairs:\n    s.mul_(d)\n    s.add_(p)\n", "s.add_", "for s, p in pairs:|s.mul_(d)|s.add_(p)"),
        ("for s, p in pairs:\n    s.mul_(d)\n    seen.append(p)\n", "s.mul_", "s.mul_(d)"),
        ("if step:\n    s.lerp_(p, 0.1)  # slowly\n", "s.lerp_", "s.lerp_(p, 0.1)  # slowly"),
        ("for s, p in pairs:\n    s.lerp_(p, 0.1)\nelse:\n    done()\n", "s.lerp_", "s.lerp_(p, 0.1)"),
        ("s.mul_(d); s.add_(p)\n", "s.mul_", ""),
        ("for s, p in pairs: s.lerp_(p, 0.1)\n", "s.lerp_", "for s, p in pairs: s.lerp_(p, 0.1)"),
        ("s.mul_(d)\ns.add_(p)\nloss.add_(penalty)\ntotal += loss\n", "s.mul_", "s.mul_(d)|s.add_(p)"),
        ("y = s.mul_(d)\n", "s.mul_", ""),
    ],
)
def test_what_goes_under_no_grad(code: str, at: str, expected: str) -> None:
    found = fixed("MEM101", f"def update(pairs):\n{textwrap.indent(code, '    ')}", at, about=UPDATED)
    lines = [one.strip() for one in found.splitlines()]
    assert lines == (["with torch.no_grad():", *expected.split("|")] if expected else [])
