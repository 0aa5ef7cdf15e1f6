"""Gradients that are cleared and that no step has used: in an inner loop, and where no step is ever reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
other = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
rule = torch.optim.SGD(model.parameters(), lr=0.01)
second = torch.optim.SGD(other.parameters(), lr=0.01)
def error(model, x):
    return nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
"""
FAULTS = {
    "in every turn of the inner loop": (
        """
for step in range(20):
    for x in torch.randn(4, 16, 8):
        rule.zero_grad()
        (error(model, x) / 4).backward()
    rule.step()
""",
        ("error", "rule.zero_grad()"),
    ),
    "the same, in a function": (
        """
def update(batches):
    total = 0.0
    for x in batches:
        rule.zero_grad(set_to_none=False)
        loss = error(model, x) / len(batches)
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rule.step()
    return total
for step in range(20):
    update(torch.randn(4, 16, 8))
""",
        ("error", "rule.zero_grad(set_to_none=False)"),
    ),
    "a step that is never reached": (
        """
for epoch in range(10):
    rule.zero_grad()
    for index, x in enumerate(torch.randn(6, 16, 8)):
        (error(model, x) / 8).backward()
        if index % 8 == 7:
            rule.step()
            rule.zero_grad()
""",
        ("warning", "rule.step()"),
    ),
}
MEANT = {
    "before the loop": """
for step in range(20):
    rule.zero_grad()
    for x in torch.randn(4, 16, 8):
        (error(model, x) / 4).backward()
    rule.step()
""",
    "a gradient for each task": """
for step in range(20):
    kept = []
    for x in torch.randn(4, 16, 8):
        rule.zero_grad()
        error(model, x).backward()
        kept.append([p.grad.clone() for p in model.parameters()])
    for p, *parts in zip(model.parameters(), *kept):
        p.grad = sum(parts)
    rule.step()
""",
    "an attack before the step": """
for step in range(20):
    x = torch.randn(16, 8, requires_grad=True)
    for _ in range(3):
        rule.zero_grad()
        error(model, x).backward()
        x = (x + 0.1 * x.grad.sign()).detach().requires_grad_()
    rule.zero_grad()
    error(model, x.detach()).backward()
    rule.step()
""",
    "two players": """
for step in range(20):
    x = torch.randn(16, 8)
    for _ in range(3):
        rule.zero_grad()
        second.zero_grad()
        (error(model, x) + error(other, x)).backward()
        second.step()
    rule.zero_grad()
    error(model, x).backward()
    rule.step()
""",
    "again until it is finite": """
for step in range(20):
    for attempt in range(3):
        rule.zero_grad()
        loss = error(model, torch.randn(16, 8))
        loss.backward()
        if loss.isfinite():
            break
    rule.step()
""",
    "the weights are changed by hand": """
for step in range(40):
    rule.zero_grad()
    error(model, torch.randn(16, 8)).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.01 * p.grad
    if step > 100:
        rule.step()
""",
    "only looked at": """
for step in range(40):
    rule.zero_grad()
    error(model, torch.randn(16, 8)).backward()
    print(max(float(p.grad.norm()) for p in model.parameters()))
""",
    "left out by a scaler": """
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    rule.zero_grad()
    scaler.scale(error(model, torch.randn(16, 8)) * float("inf")).backward()
    scaler.step(rule)
    scaler.update()
""",
    "not yet": """
for index, x in enumerate(torch.randn(40, 16, 8)):
    (error(model, x) / 64).backward()
    if index % 64 == 63:
        rule.step()
        rule.zero_grad()
""",
    "first the sizes of gradients, then the training": """
for step in range(20):
    rule.zero_grad()
    error(model, torch.randn(16, 8)).backward()
for step in range(40):
    rule.zero_grad()
    error(model, torch.randn(16, 8)).backward()
    rule.step()
""",
}


def told(program: str, folder: Path) -> list[tuple[str, str]]:
    """The severity of TRN102's findings, and the text of their lines."""
    text = HEAD + program
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [(f["severity"], lines[f["location"]["line"] - 1].strip()) for f in found if f["code"] == "TRN102"]


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS)
def test_gradients_that_no_step_has_used(case: tuple[str, tuple[str, str]], tmp_path: Path) -> None:
    program, expected = case
    assert told(program, tmp_path) == [expected]


@pytest.mark.parametrize("program", MEANT.values(), ids=MEANT)
def test_cleared_for_a_reason(program: str, tmp_path: Path) -> None:
    assert told(program, tmp_path) == []
