"""Parameters that an optimizer has and does not train: frozen again in every step, or stepped once and never since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

ADAPTER = """
import torch
from torch import nn
class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(4, 16)
        self.base.requires_grad_(False)
        self.on = True
    def enable(self, on):
        self.on = on
        for layer in (self.down, self.up):
            {switch}
    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) if self.on else self.base(x)
torch.manual_seed(0)
model = nn.Sequential(Adapter(), nn.ReLU(), nn.Linear(16, 2))
rule = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
{once}
for step in range(60):
    x = torch.randn(8, 16)
    {every}
    loss = model(x).square().mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
"""
BOTH = "model[0].enable(False); model[0].enable(True)"
SHUT = {
    "by the method": "if not on: layer.requires_grad_(False)",
    "by the flag": "layer.weight.requires_grad = layer.bias.requires_grad = layer.weight.requires_grad and on",
}

STALLED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
rules = {{}}
def step(names):
    for name, p in model.named_parameters():
        if name in names:
            rule = rules.setdefault(name, torch.optim.Adam([p], lr=1e-2))
            rule.step()
            rule.zero_grad()
every = [name for name, _ in model.named_parameters()]
for turn in range(160):
    x = torch.randn(16, 8)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
    loss.backward()
    step({names})
"""


def of(code: str, program: str, folder: Path) -> list[dict[str, Any]]:
    found = forked(program, folder)
    assert found is not None
    return [f for f in found if f["code"] == code]


@pytest.mark.parametrize("switch", SHUT.values(), ids=SHUT)
def test_what_every_step_freezes_has_the_line(switch: str, tmp_path: Path) -> None:
    (found,) = of("TRN104", program := ADAPTER.format(switch=switch, once="", every=BOTH), tmp_path)
    assert found["severity"] == "warning" and found["message"].startswith(
        "4 of 6 parameters of AdamW have not required"
    )
    lines = found["location"]["line"], next(r["line"] for r in found["related"] if r["role"] == "called")
    assert [program.splitlines()[line - 1].strip() for line in lines] == [switch, BOTH]


def test_what_is_frozen_once_is_a_note(tmp_path: Path) -> None:
    (found,) = of("TRN104", ADAPTER.format(switch=SHUT["by the method"], once=BOTH, every=""), tmp_path)
    assert found["severity"] == "info" and "changes nothing" not in found["message"]


@pytest.mark.parametrize("name", ["train", "freeze_adapter"])
def test_what_means_to_freeze_is_a_note(name: str, tmp_path: Path) -> None:
    """A module that keeps a part frozen whenever it is told to train."""
    program = ADAPTER.format(switch=SHUT["by the method"], once="", every=f"model[0].{name}(False)")
    (found,) = of("TRN104", program.replace("def enable(", f"def {name}("), tmp_path)
    assert found["severity"] == "info" and program.splitlines()[found["location"]["line"] - 1].strip().startswith(
        "if not on"
    )


def test_what_is_switched_on_again_is_trained(tmp_path: Path) -> None:
    assert of("TRN104", ADAPTER.format(switch="layer.requires_grad_(on)", once="", every=BOTH), tmp_path) == []


def test_an_optimizer_that_is_not_asked_any_more(tmp_path: Path) -> None:
    (found,) = of("TRN105", STALLED.format(names="every if turn == 0 else every[2:]"), tmp_path)
    assert found["severity"] == "warning" and found["holder"]["path"] == ["0.weight", "0.bias"]
    assert "2 optimizers (Adam) stepped in the first steps and never again" in found["cause"]


@pytest.mark.parametrize(
    "names",
    ["every", "every if turn % 40 == 0 else every[2:]", "every if turn == 0 else every[2:] if turn < 9 else every"],
    ids=["always", "rarely", "later"],
)
def test_an_optimizer_that_steps_again_is_none(names: str, tmp_path: Path) -> None:
    assert of("TRN105", STALLED.format(names=names), tmp_path) == []


ZERO = """
import torch
from torch import nn
torch.manual_seed(0)
base, down, up = nn.Linear(16, 16).requires_grad_(False), nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)
for part in ({zeroed}):
    nn.init.zeros_(part.weight)
rule = torch.optim.SGD([*down.parameters(), *up.parameters()], lr=0.1)
for step in range(60):
    x = torch.randn(8, 16)
    loss = (base(x) + up(down(x))).square().mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
"""


def test_two_factors_that_are_both_zero_train_nothing(tmp_path: Path) -> None:
    (found,) = of("TRN104", ZERO.format(zeroed="down, up"), tmp_path)
    assert found["severity"] == "error" and "2 of 2 parameters of SGD was exactly zero" in found["message"]
    assert "2 of them hold nothing but zeros" in found["cause"]


def test_one_factor_that_begins_at_zero_is_how_adapters_begin(tmp_path: Path) -> None:
    assert of("TRN104", ZERO.format(zeroed="up,"), tmp_path) == []


def test_gradients_that_the_step_itself_clears_in_place_were_not_zero(tmp_path: Path) -> None:
    program = ZERO.format(zeroed="").replace("torch.optim.SGD(", "Own(").replace("    rule.zero_grad()\n", "")
    own = """
class Own(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        self.zero_grad(set_to_none=False)
"""
    assert of("TRN104", program.replace("torch.manual_seed(0)\n", own + "torch.manual_seed(0)\n"), tmp_path) == []
