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


def test_a_longer_one_of_a_few_megabytes_is_a_note(tmp_path: Path) -> None:
    (one,) = found(tmp_path, "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=150)")
    assert one["severity"] == "info" and "with 24.0 MB" in one["message"]


OWN = """
class Own(torch.optim.Optimizer):
    def __init__(self, params, **defaults):
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure):
        with torch.enable_grad():
            closure()
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("old_dirs", []).append(p.grad.clone())
            self.state[p].setdefault("old_stps", []).append(p.clone())
            p.sub_(p.grad, alpha=0.01)

optimizer = """


def test_one_that_is_not_cut_has_no_end_whatever_its_option_says(tmp_path: Path) -> None:
    program = PROGRAM.replace("optimizer = {", OWN + "{")
    findings = forked(program.format(optimizer="Own([picture], history_size=10)", steps=80, each="pass"), tmp_path)
    (one,) = [one for one in findings or () if one["code"] == "MEM102"]
    assert one["severity"] == "error" and "history_size" not in one["message"] + one["remedy"]["summary"]


def test_each_history_has_its_own_end(tmp_path: Path) -> None:
    other = (
        "other = torch.randn(30_000, requires_grad=True)\nsecond = torch.optim.LBFGS([other], lr=0.01, max_iter=1)\n"
    )
    turn = "second.step(lambda: (second.zero_grad(), (l := (other**2 + torch.sin(other)).sum()).backward(), l)[-1])"
    program = PROGRAM.replace("class Trainer", other + "class Trainer")
    optimizer = "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=90)"
    findings = forked(program.format(optimizer=optimizer, steps=80, each=turn), tmp_path)
    told = {one["holder"]["name"]: one["message"] for one in findings or () if one["code"] == "MEM102"}
    assert "full after 90 updates (`history_size`), with 14.4 MB" in told["optimizer.state[tensor]"]
    assert "full after 100 updates (`history_size`), with 24.0 MB" in told["second.state[tensor]"]


def test_a_history_beside_it_has_no_such_end(tmp_path: Path) -> None:
    other = "other = [torch.randn(150, 200, requires_grad=True)]\nsecond = Own(other)\n"
    turn = "second.step(lambda: (other[0].grad is None or second.zero_grad(), (other[0]**2).sum().backward()))"
    program = PROGRAM.replace("optimizer = {", OWN + "{").replace("class Trainer", other + "class Trainer")
    optimizer = "torch.optim.LBFGS([picture], lr=0.01, max_iter=1, history_size=300)"
    findings = forked(program.format(optimizer=optimizer, steps=80, each=turn), tmp_path)
    told = {one["holder"]["name"]: one for one in findings or () if one["code"] == "MEM102"}
    (grows,) = [name for name in told if name.startswith("second.")]
    assert told[grows]["severity"] == "error" and "full after" not in told[grows]["message"]
    assert "full after 300 updates" in told["optimizer.state[tensor]"]["message"]


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
