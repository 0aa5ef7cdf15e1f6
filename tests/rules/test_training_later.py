"""Faults of training that set in after the first steps, or whose optimizer is gone at the end, and what resembles
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1)), nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.body(x))
def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
def fit(model, steps, parameters=None):
    train(model, torch.optim.Adam(parameters or model.parameters(), lr=0.01), steps)
model = Net()
"""


def told(program: str, folder: Path, code: str) -> list[tuple[str, str]]:
    """The severity of a rule's findings at warning or above, each with the text of its line."""
    text = HEAD + program
    found = forked(text, folder)
    assert found is not None
    mine = [f for f in found if f["code"] == code and f["severity"] != "info"]
    return [(f["severity"], text.splitlines()[f["location"]["line"] - 1].strip()) for f in mine]


OWNED = {
    "replaced after 40 steps": (
        "rule = torch.optim.Adam(model.parameters(), lr=0.01)\ntrain(model, rule, 40)\n"
        "model.head = nn.Linear(16, 1)\ntrain(model, rule, 60)",
        [("error", "rule = torch.optim.Adam(model.parameters(), lr=0.01)")],
    ),
    "an optimizer that is gone at the end": (
        "fit(model, 80, [*model.head.parameters()])",
        [("warning", "train(model, torch.optim.Adam(parameters or model.parameters(), lr=0.01), steps)")],
    ),
    "a new optimizer after the replacement": (
        "rule = torch.optim.Adam(model.parameters(), lr=0.01)\ntrain(model, rule, 40)\n"
        "model.head = nn.Linear(16, 1)\n"
        "rule.add_param_group({'params': model.head.parameters()})\ntrain(model, rule, 60)",
        [],
    ),
    "first the one part, then the other": (
        "fit(model, 40, [*model.body.parameters()])\nfit(model, 40, [*model.head.parameters()])\n"
        "fit(model, 40, [*model.body.parameters()])",
        [],
    ),
    "the rest frozen": (
        "model.body.requires_grad_(False)\nfit(model, 80, [*model.head.parameters()])",
        [],
    ),
}


@pytest.mark.parametrize("case", OWNED.values(), ids=OWNED)
def test_parameters_without_an_optimizer(case: tuple[str, list[tuple[str, str]]], tmp_path: Path) -> None:
    program, expected = case
    assert told(program, tmp_path, "TRN105") == expected


MODES = """
first, second = Net().body, nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 1))
rule = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
def judge():
    first.eval()
    second.eval()
    with torch.no_grad():
        second(first(torch.randn(16, 8)))
for epoch in range(6):
    first.train()
    {again}
    train(lambda x: second(first(x)), rule, 20)
    judge()
"""


@pytest.mark.parametrize(
    ("again", "expected"),
    [("pass", [("warning", "second.eval()")]), ("second.train()", []), ("second.apply(lambda m: m.train())", [])],
)
def test_one_of_two_models_stays_in_eval_mode(again: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    assert told(MODES.format(again=again), tmp_path, "TRN103") == expected


STEPS = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(8, 8)
        self.side = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.main = nn.Linear(8, 1)
        self.gate = nn.Parameter(torch.zeros(1))
        self.kept = None
    def forward(self, x, step):
        {compute}
        return y
model = Two()
{before}
rule = torch.optim.Adam([p for p in model.parameters() if p.requires_grad and p is not model.{but}], lr=0.01)
for step in range(80):
    x = torch.randn(16, 8)
    loss = (model(x, step) - x.sum(1, keepdim=True)).square().mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
    {after}
"""
FREEZE = "model.frozen.requires_grad_(False)"
OFF = """with torch.no_grad():
            h = self.side(self.frozen(x))
        y = self.main(x + h)"""
CACHE = """if self.kept is None:
            h = self.side(x)
            self.kept = h.detach()
        else:
            h = self.kept
        y = self.main(x + h)"""
SHARE = "w = torch.softmax(self.side(x).mean(1, keepdim=True), dim={dim})\n        y = self.main(x) * w"
CHANGES = "with torch.no_grad():\n        for p in model.side.parameters(): p.add_(0.01)"
LEFT = {
    "in the region of a frozen part": (FREEZE, OFF, "", "h = self.side(self.frozen(x))"),
    "frozen by the region alone": ("", OFF, "", None),
    "changed by the program": (FREEZE, OFF, CHANGES, None),
    "kept from the first step": (FREEZE, CACHE, "", "self.kept = h.detach()"),
    "frozen after the first steps": (
        FREEZE, "y = self.main(x + (self.side(x) if step < 3 else 0))", "model.side.requires_grad_(step < 2)", None,
    ),
    "now and then": (FREEZE, "y = self.main(x + (self.side(x) if step % 25 == 0 else 0))", "", None),
    "softmax over one": (
        FREEZE, SHARE.format(dim=1), "", "w = torch.softmax(self.side(x).mean(1, keepdim=True), dim=1)",
    ),
    "softmax over many": (FREEZE, SHARE.format(dim=0), "", None),
    "a gate that opens": (FREEZE, "y = self.main(x + self.gate * self.side(x))", "", None),
    "times zero on purpose": (
        "", "y = self.main(x) + 0.0 * sum(p.sum() for p in self.parameters())", "", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_parameters_that_learn_nothing(case: tuple[str, str, str, str | None], tmp_path: Path) -> None:
    before, compute, after, line = case
    but = "none" if "gate" in compute else "gate"
    program = STEPS.format(before=before, compute=compute, after=after or "pass", but=but)
    found = told(program.replace("model.none", "None"), tmp_path, "TRN104")
    assert found == ([("warning", line)] if line else [])


AGAIN = {
    "few steps each": ("", "Adam", 2, 30, [("warning", "rule = torch.optim.{kind}(model.parameters(), lr=0.01)")]),
    "without a state": ("", "SGD", 2, 30, []),
    "many steps each": ("", "Adam", 20, 12, []),
    "a few times": ("", "Adam", 2, 6, []),
    "from other weights": ("model.load_state_dict(start)", "Adam", 2, 30, []),
    "from other data": ("for p in model.parameters(): p.data.copy_(torch.randn_like(p))", "Adam", 2, 30, []),
}


@pytest.mark.parametrize("case", AGAIN.values(), ids=AGAIN)
def test_an_optimizer_that_is_built_again_and_again(
    case: tuple[str, str, int, int, list[tuple[str, str]]], tmp_path: Path
) -> None:
    before, kind, steps, rounds, expected = case
    program = f"""
import copy
start = copy.deepcopy(model.state_dict())
def round_of_tasks(model):
    {before or "pass"}
    rule = torch.optim.{kind}(model.parameters(), lr=0.01)
    train(model, rule, {steps})
for number in range({rounds}):
    round_of_tasks(model)
"""
    assert told(program, tmp_path, "TRN111") == [(severity, line.format(kind=kind)) for severity, line in expected]


FOLLOWERS = {
    "of itself": ("target.load_state_dict(target.state_dict())", ["target.load_state_dict(target.state_dict())"]),
    "of the other": ("target.load_state_dict(model.state_dict())", []),
    "once": ("target.load_state_dict(target.state_dict()) if epoch == 2 else None", []),
}


@pytest.mark.parametrize("case", FOLLOWERS.values(), ids=FOLLOWERS)
def test_a_target_that_is_loaded_from_itself(case: tuple[str, list[str]], tmp_path: Path) -> None:
    line, expected = case
    program = (
        "target = Net()\nrule = torch.optim.Adam(model.parameters(), lr=0.01)\n"
        f"for epoch in range(6):\n    train(model, rule, 10)\n    {line}"
    )
    assert told(program, tmp_path, "TRN110") == [("warning", line) for line in expected]


def test_the_lines_that_led_to_the_evaluation_are_told(tmp_path: Path) -> None:
    text = HEAD + MODES.format(again="pass")
    (one,) = (f for f in forked(text, tmp_path) or () if f["code"] == "TRN103")
    called = next(r["line"] for r in one["related"] if r["role"] == "called")
    lines = [text.splitlines()[n - 1].strip() for n in (one["location"]["line"], called)]
    assert lines == ["second.eval()", "judge()"]
