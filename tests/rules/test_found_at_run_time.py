"""Faults that a run shows by what was computed, in programs whose text alone is silent, and what resembles them."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

from torchvet.rules import rule

LOOP = """
import torch
from torch import nn

torch.manual_seed(0)
body, last = nn.Linear(16, 32), nn.Linear(32, 4)
optimizer = torch.optim.SGD([*body.parameters(), *last.parameters()], lr=0.1)
ways = {{"softmax": torch.softmax, "raw": lambda x, dim: x}}
for step in range(30):
    x = torch.randn(64, 16)
    scores = last(torch.tanh(body(x)))
    {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

LOSSES = [
    ('loss = nn.functional.cross_entropy(ways["softmax"](scores, 1), x[:, :4].argmax(1))', True),
    ('loss = nn.functional.cross_entropy(ways["raw"](scores, 1), ways["softmax"](x[:, :4], 1))', False),
    ('loss = nn.functional.nll_loss(ways["softmax"](scores, 1).log(), x[:, :4].argmax(1))', False),
    ("loss = nn.functional.binary_cross_entropy_with_logits(getattr(scores, 'sigmoid')(), (x[:, :4] > 0).float())",
     True),
    ("loss = nn.functional.binary_cross_entropy_with_logits(getattr(scores, 'tanh')(), (x[:, :4] > 0).float())",
     False),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "twice"), LOSSES)
def test_what_is_normalised_twice(loss: str, twice: bool, tmp_path: Path) -> None:
    found = forked(LOOP.format(loss=loss), tmp_path)
    assert found is not None
    mine = [f for f in found if f["code"] == "TRN108"]
    assert [f["severity"] for f in mine] == (["warning"] if twice else [])
    if twice:
        assert mine[0]["evidence"] == "observed" and mine[0]["location"]["line"] == 12


TRIALS = """
import copy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5)
start = {kept}
for epoch in range(4):
    {early}
    for step in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {late}
    model.load_state_dict(start)
"""
SEEN = [
    ("model.state_dict()", "pass", "scheduler.step()", {"TRN110": 10}),
    ("copy.deepcopy(model.state_dict())", "scheduler.step()", "pass", {"TRN109": 12}),
    ("copy.deepcopy(model.state_dict())", "pass", "scheduler.step()", {}),
]


@pytest.mark.parametrize(("kept", "early", "late", "expected"), SEEN)
def test_what_is_brought_back_and_what_steps_first(
    kept: str, early: str, late: str, expected: dict[str, int], tmp_path: Path
) -> None:
    found = forked(TRIALS.format(kept=kept, early=early, late=late), tmp_path)
    assert found is not None
    seen = {f["code"]: f["location"]["line"] for f in found if f["evidence"] == "observed"}
    assert {code: line for code, line in seen.items() if code in ("TRN109", "TRN110")} == expected
    assert not expected or all(f["remedy"]["edits"] for f in found if f["code"] in expected)


HEADS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.heads = {heads}

    def loss(self, x, which):
        return nn.functional.mse_loss(self.heads[which](torch.tanh(self.body(x))), x[:, :1])

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

torch.manual_seed(0)
whole = Whole()
net = whole.net
optimizer = torch.optim.SGD({given}, lr=0.1)
for step in range(30):
    loss = net.loss(torch.randn(16, 8), step % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALL = "[*net.parameters(), *(p for h in net.heads for p in h.parameters())]"


@pytest.mark.parametrize(
    ("heads", "given", "found"),
    [
        ("[nn.Linear(8, 1), nn.Linear(8, 1)]", "net.parameters()", ["DEV109"]),
        ("nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)])", "net.parameters()", []),
        ("[nn.Linear(8, 1), nn.Linear(8, 1)]", ALL, []),
        ("[nn.Linear(8, 1).requires_grad_(False) for _ in range(2)]", "net.parameters()", []),
    ],
)
def test_what_a_module_hides_that_is_never_called_itself(
    heads: str, given: str, found: list[str], tmp_path: Path
) -> None:
    said = forked(HEADS.format(heads=heads, given=given), tmp_path)
    assert said is not None
    mine = [f for f in said if f["evidence"] == "observed" and f["severity"] != "info" and f["code"][:3] == "DEV"]
    assert [f["code"] for f in mine] == found
    assert all("Whole.net.heads" in f["message"] or "Net.heads" in f["message"] for f in mine)


def test_what_is_replaced_in_part_has_the_fix_that_source_knows(tmp_path: Path) -> None:
    said = forked(rule("DEV103").BAD, tmp_path)
    assert said is not None
    (found,) = (f for f in said if f["code"] == "DEV103")
    assert found["evidence"] == "observed" and "2 parameters of Sequential are never stepped" in found["message"]
    assert found["measured"]["bytes"] == 260 and found["remedy"]["edits"] and not found["remedy"]["safe"]
