"""MEM102 on the history that L-BFGS keeps of its last updates: it has an end, which is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import torch

torch.manual_seed(0)
picture = torch.randn(20_000, requires_grad=True)
scale = torch.linspace(0.5, 2, 20_000)
optimizer = {optimizer}

def closure():
    optimizer.zero_grad()
    loss = (scale * (picture - 1) ** 2 + 0.1 * torch.sin(3 * picture)).sum()
    loss.backward()
    return loss

class Trainer:
    def __init__(self):
        self.states = []

trainer = Trainer()
for step in range({steps}):
    optimizer.step(closure)
    {each}
"""


def found(folder: Path, optimizer: str, steps: int = 80, each: str = "pass") -> list[dict[str, Any]]:
    """Findings about memory."""
    findings = forked(PROGRAM.format(optimizer=optimizer, steps=steps, each=each), folder)
    assert findings is not None
    return [one for one in findings if one["code"].startswith("MEM1")]


def test_a_history_is_named_with_its_end(tmp_path: Path) -> None:
    (one,) = found(tmp_path, "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=400)")
    assert one["code"] == "MEM102" and one["severity"] == "warning"
    assert "it is full after 400 updates (`history_size`), with 64.0 MB" in one["message"]
    assert "exhausted" not in one["message"] and "history_size" in one["remedy"]["summary"]
    assert one["location"]["line"] == 21
    assert one["measured"]["bytes_per_step"] == pytest.approx(160_000, rel=0.02)


def test_as_long_as_it_is_by_default_it_is_a_note(tmp_path: Path) -> None:
    assert [one["severity"] for one in found(tmp_path, "torch.optim.LBFGS([picture], lr=0.01, max_iter=1)")] == ["info"]


def test_a_full_one_does_not_grow(tmp_path: Path) -> None:
    assert found(tmp_path, "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=4)") == []


def test_averages_are_no_history(tmp_path: Path) -> None:
    assert found(tmp_path, "torch.optim.Adam([picture], lr=0.01)") == []


def test_what_the_program_keeps_beside_it_has_no_such_end(tmp_path: Path) -> None:
    optimizer = "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=4)"
    (one,) = found(tmp_path, optimizer, each="trainer.states.append(picture.detach() * 1.0)")
    assert one["holder"]["name"] == "trainer.states" and "history_size" not in one["message"]
    assert one["measured"]["exhausted_at_step"] is not None
