"""Targets that an activation at a model's end cannot reach, and such as it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import program, recording
from observed_fixes import fixed_lines

from torchvet.finding import About, Finding
from torchvet.recording.records.base import Place
from torchvet.recording.records.labels import TargetsOutside
from torchvet.rules import rule
from torchvet.rules.training.fixes.sequentials import activation_of
from torchvet.source.model import SourceFile

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
{made}
parts = nn.ModuleList([one for one in list(globals().values()) if isinstance(one, nn.Module)])
rule = torch.optim.SGD(parts.parameters(), lr=0.01)
for step in range(24):
    x = torch.randn(32, 6)
    y = x[:, :2] + 0.1 * torch.randn(32, 2)
    rule.zero_grad()
{step}
    rule.step()
"""
LINEAR = "model = nn.Linear(6, 2)"
RELU = "model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2), nn.ReLU())"
HELPER = """
def layers(*sizes):
    made = []
    for one, other in zip(sizes, sizes[1:]):
        made += [nn.Linear(one, other), nn.ReLU(inplace=True)]
    return nn.Sequential(*made)
model = layers(6, 16, 2)
"""
MODULE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)
    def forward(self, x):
        hidden = self.body(x)
        return torch.{activation}(self.head(hidden))
model = Net()
"""
TWO_PARTS = "one = nn.Sequential(nn.Linear(6, 1), nn.ReLU())\ntwo = nn.Sequential(nn.Linear(6, 1), nn.ReLU())"
BACKWARD = "loss.backward()"
MSE = "loss = F.mse_loss(model(x), y)\nloss.backward()"

OUT_OF_REACH = {
    "mean squared error": (RELU, MSE, "model(x)"),
    "a criterion": (RELU + "\ncriterion = nn.L1Loss()", "pred = model(x)\ncriterion(pred, y).backward()", "pred ="),
    "smooth": (RELU, "pred = model(x)\nF.smooth_l1_loss(y, pred).backward()", "pred ="),
    "huber": (RELU, "pred = model(x)\nF.huber_loss(pred, y, reduction='none').mean().backward()", "pred ="),
    "a likelihood": (
        RELU,
        "pred = model(x)\nF.gaussian_nll_loss(pred, y, torch.ones(32, 1)).backward()",
        "pred =",
    ),
    "squares": (RELU, "pred = model(x)\n((pred - y) ** 2).mean().backward()", "pred ="),
    "squares by hand": (RELU, "pred = model(x)\nd = y - pred\n(0.5 * d * d).sum(1).mean().backward()", "pred ="),
    "distances": (RELU, "pred = model(x)\n(pred - y).abs().sum().div(32).backward()", "pred ="),
    "a root": (RELU, "pred = model(x)\n(((pred - y) ** 2) + 1e-6).sqrt().mean().backward()", "pred ="),
    "a norm": (RELU, "pred = model(x)\ntorch.linalg.vector_norm(pred - y, dim=1).mean().backward()", "pred ="),
    "in place": (HELPER, MSE, "model(x)"),
    "sigmoid": (MODULE.replace("{activation}", "sigmoid"), MSE, "torch.sigmoid"),
    "tanh": (MODULE.replace("{activation}", "tanh"), MSE.replace(", y)", ", 3 * y)"), "torch.tanh"),
    "absolute values": (MODULE.replace("{activation}", "abs"), MSE, "torch.abs"),
    "squared": (MODULE.replace("{activation}", "square"), MSE, "torch.square"),
    "exponentials": (MODULE.replace("{activation}", "exp"), MSE, "torch.exp"),
    "SiLU": (RELU.replace("nn.ReLU())", "nn.SiLU())"), MSE, "model(x)"),
    "softmax": (RELU.replace("nn.ReLU())", "nn.Softmax(dim=1))"), MSE, "model(x)"),
    "softplus": (RELU.replace("nn.ReLU())", "nn.Softplus())"), MSE, "model(x)"),
    "ELU": (RELU.replace("nn.ReLU())", "nn.ELU())"), MSE.replace(", y)", ", 3 * y)"), "model(x)"),
    "clamped": (LINEAR, "pred = model(x).clamp(0, 1)\nF.mse_loss(pred, y).backward()", "pred ="),
    "views": (
        RELU,
        "pred = model(x)\nF.mse_loss(pred.T.reshape(-1, 1).squeeze(1), y.T.flatten()).backward()",
        "pred =",
    ),
    "parts joined": (TWO_PARTS, "a = one(x)\nF.mse_loss(torch.cat([a, two(x)], 1), y).backward()", "a ="),
    "rows chosen": (RELU, "pred = model(x)\nm = y[:, 0] > -1\nF.mse_loss(pred[m], y[m]).backward()", "pred ="),
    "rounded": (
        RELU,
        "with torch.autocast('cpu', torch.bfloat16):\n    pred = model(x)\nF.mse_loss(pred.float(), y).backward()",
        "pred =",
    ),
    "a term of several": (
        RELU,
        "pred = model(x)\nloss = 0.3 * F.mse_loss(pred, y) + 0.01 * sum(p.abs().sum() for p in model.parameters())\n"
        "(loss / 2).backward()",
        "pred =",
    ),
    "a root of the mean": (RELU, "pred = model(x)\n(F.mse_loss(pred, y) + 1e-8).sqrt().backward()", "pred ="),
    "a root of the mean by hand": (RELU, "pred = model(x)\n(((pred - y) ** 2).mean() ** 0.5).backward()", "pred ="),
    "one loss less another": (
        RELU,
        "pred = model(x)\nloss = (pred - y).pow(2).mean() - 0.01 * model[0](x).var()\nloss.backward()",
        "pred =",
    ),
    "two losses of one prediction": (
        RELU,
        "pred = model(x)\n(F.mse_loss(pred, y) + F.smooth_l1_loss(pred, y) + (pred - y).abs().mean()).backward()",
        "pred =",
    ),
    "two targets of one prediction": (
        RELU,
        "pred = model(x)\n(F.mse_loss(pred, y) + F.mse_loss(pred, y - 0.1)).backward()",
        "pred =",
    ),
    "targets of a network": (
        RELU + "\nteacher = nn.Linear(6, 2)",
        "pred = model(x)\nF.mse_loss(pred, teacher(x).detach()).backward()",
        "pred =",
    ),
}  # fmt: skip
WITHIN = {
    "no activation": (LINEAR, MSE),
    "targets from 0 on": (RELU, MSE.replace(", y)", ", y.abs())")),
    "an autoencoder": (
        "model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 6), nn.Sigmoid())",
        "x = torch.rand(32, 6)\nF.mse_loss(model(x), x).backward()",
    ),
    "actions": (RELU.replace("nn.ReLU())", "nn.Tanh())"), MSE.replace(", y)", ", y.tanh())")),
    "noise around 0": (RELU, MSE.replace(", y)", ", y.clamp(min=0) - 1e-6)")),
    "one outlier": (RELU, "y = y.abs()\ny[0, 0] -= 9 * (step == 3)\n" + MSE),
    "padding by one value": (RELU, "y = y.abs()\ny[torch.arange(32) % 4 == 0] = -1\n" + MSE),
    "padding by a large value": (RELU, "y = y.abs()\ny[torch.arange(32) % 4 == 0] = -999\n" + MSE),
    "missing values": (
        RELU,
        "y = y.abs()\ny[torch.arange(32) % 4 == 0] = float('nan')\nF.mse_loss(model(x), y, reduction='none')"
        ".nan_to_num(0).mean().backward()",
    ),
    "a mask on the losses": (
        RELU,
        "e = F.mse_loss(model(x), y, reduction='none')\n(e * (y > 0)).sum().div(32).backward()",
    ),
    "a mask on squares": (RELU, "e = (model(x) - y) ** 2\n(e * (y > 0)).sum().div(32).backward()"),
    "a mask in place": (RELU, "e = (model(x) - y) ** 2\ne *= y > 0\ne.mean().backward()"),
    "a mask on differences": (RELU, "e = (model(x) - y) * (y > 0)\n(e ** 2).mean().backward()"),
    "losses chosen": (RELU, "e = (model(x) - y).abs()\ne[y > 0].mean().backward()"),
    "hinges": (RELU, "(1 - (y > 0).float().mul(2).sub(1) * model(x)).clamp(min=0).mean().backward()"),
    "a margin": (RELU, "p = model(x)\nF.margin_ranking_loss(p[:, 0], p[:, 1], y[:, 0].sign()).backward()"),
    "quantiles": (RELU, "d = y - model(x)\ntorch.maximum(0.9 * d, -0.1 * d).mean().backward()"),
    "features of a teacher": (
        RELU + "\nteacher = nn.Sequential(nn.Linear(6, 2), nn.ReLU())",
        "F.mse_loss(model(x), teacher(x).detach()).backward()",
    ),
    "targets with a graph": (
        RELU + "\nteacher = nn.Linear(6, 2)",
        "F.mse_loss(model(x), teacher(x)).backward()",
    ),
    "cross entropy of probabilities": (
        RELU.replace("nn.ReLU())", "nn.Sigmoid())"),
        "F.binary_cross_entropy(model(x), (y > 0).float()).backward()",
    ),
    "scaled": (RELU.replace("nn.ReLU())", "nn.Tanh())"), "F.mse_loss(4 * model(x), y).backward()"),
    "shifted": (RELU, "F.mse_loss(model(x) - 4, y).backward()"),
    "two of them subtracted": (TWO_PARTS, "F.mse_loss(one(x) - two(x), y[:, :1]).backward()"),
    "dropped out": (RELU, "F.mse_loss(F.dropout(model(x), 0.1), y).backward()"),
    "joined with what is not bounded": (
        "one = nn.Sequential(nn.Linear(6, 1), nn.ReLU())\ntwo = nn.Linear(6, 1)",
        "F.mse_loss(torch.cat([one(x), two(x)], 1), y).backward()",
    ),
    "distances to fixed centers in a model": (
        RELU + "\ncenters = torch.randn(4, 2)\nlast = nn.Linear(4, 2)",
        "d = ((model(x)[:, None] - centers) ** 2).sum(-1)\nF.mse_loss(last(torch.exp(-d)), y).backward()",
    ),
    "kernels added up": (
        RELU + "\ncenters = torch.randn(4, 2)\nlast = nn.Linear(4, 2)",
        "d = ((model(x)[:, None] - centers) ** 2).sum(-1)\n"
        "((((-d).exp()[:, None] * last.weight).sum(-1) - y) ** 2).mean().backward()",
    ),
    "distances to prototypes": (
        RELU + "\nprototypes = torch.randn(4, 2)",
        "d = ((model(x)[:, None] - prototypes) ** 2).sum(-1)\n"
        "F.cross_entropy(-d, (y > 0).long() @ torch.tensor([1, 2])).backward()",
    ),
    "distances that are the prediction": (
        RELU + "\nanchors = torch.randn(4, 2)",
        "d = (model(x)[:, None] - anchors).norm(dim=-1)\n"
        "r = (y[:, None] - anchors).norm(dim=-1)\n(F.mse_loss(d, r) + (d - r).abs().mean()).backward()",
    ),
    "pushed from what is far": (
        RELU,
        "p = model(x)\n(F.mse_loss(p, y.abs()) - 0.01 * F.mse_loss(p, y - 3)).backward()",
    ),
    "pushed by a negative weight": (
        RELU,
        "p = model(x)\n(F.mse_loss(p, y.abs()) + -0.01 * F.mse_loss(p, y - 3)).backward()",
    ),
    "a term that is turned off": (
        RELU,
        "p = model(x)\n(p.sum() + 0.0 * F.mse_loss(p, y)).backward()",
    ),
    "a triplet": (
        RELU,
        "p = model(x)\nnear, far = (p - y.abs()).pow(2).sum(1), (p - (y - 3)).pow(2).sum(1)\n"
        "(near.mean() + (9 - far).relu().mean()).backward()",
    ),
    "joined with what is known": (
        "model = nn.Sequential(nn.Linear(6, 2), nn.ReLU())",
        "F.mse_loss(torch.cat([x, model(x)], 1), torch.cat([x, y.abs()], 1)).backward()",
    ),
    "a path with its start": (
        "model = nn.Sequential(nn.Linear(6, 6), nn.ReLU())",
        "path = torch.stack([x, model(x)])\nF.mse_loss(path, torch.stack([x, x.abs()])).backward()",
    ),
    "leaky": (RELU.replace("nn.ReLU())", "nn.LeakyReLU())"), MSE),
    "logarithms": (RELU, "F.mse_loss((model(x) + 1).log(), y.abs().log1p()).backward()"),
    "a metric": (
        LINEAR,
        "pred = model(x)\nclipped = F.mse_loss(pred.clamp(0, 1), y)\nF.mse_loss(pred, y).backward()",
    ),
    "an evaluation": (
        LINEAR,
        "pred = model(x)\nwith torch.no_grad():\n    F.mse_loss(pred.relu(), y)\nF.mse_loss(pred, y).backward()",
    ),
    "a penalty": (RELU + "\nlimit = torch.tensor(-0.3)", "((model(x) - limit) ** 2).mean().backward()"),
}  # fmt: skip


def told(folder: Path, made: str, step: str) -> list[str]:
    """TRN130's lines, with their severity."""
    indented = "\n".join(f"    {line}" for line in step.splitlines())
    text = PROGRAM.replace("{made}", made).replace("{step}", indented)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [f["severity"] + " " + lines[f["location"]["line"] - 1].strip() for f in found if f["code"] == "TRN130"]


@pytest.mark.parametrize(("made", "step", "line"), OUT_OF_REACH.values(), ids=OUT_OF_REACH)
def test_targets_that_are_never_predicted(made: str, step: str, line: str, tmp_path: Path) -> None:
    (found,) = told(tmp_path, made, step)
    assert found.startswith("warning") and line in found


@pytest.mark.parametrize(("made", "step"), WITHIN.values(), ids=WITHIN)
def test_targets_that_are_within_reach_or_not_judged(made: str, step: str, tmp_path: Path) -> None:
    assert told(tmp_path, made, step) == []


def found_for(**more: Any) -> list[Finding]:
    """What the rule says of one record: of 1,000 targets 300 below 0, unless other figures are given."""
    here = Place("/p/train.py", 8, "<module>")
    facts: dict[str, Any] = {
        "steps": 6,
        "stray": 6,
        "targets": 1000,
        "below": 300,
        "floor": 200.0,
        "spread": 1000.0,
        "values": (-3.0, -0.2),
        **more,
    }
    seen = TargetsOutside(place=here, loss=here, operator="relu", module="Net.head.3", low=0.0, **facts)
    return list(rule("TRN130").in_recording(recording(program(), seen)))


def test_what_is_measured_grades_it() -> None:
    (many,) = found_for()
    assert many.severity == "warning"
    assert many.message == "30 % of the targets lie below 0, and what ReLU in `Net.head.3` gives is always 0 or more"
    (few,) = found_for(below=30)
    assert few.severity == "info"
    # So many that lie outside by little cost nothing.
    (near,) = found_for(floor=2.0)
    assert near.severity == "info"


@pytest.mark.parametrize(
    "more",
    [{"below": 3}, {"stray": 2}, {"steps": 16, "stray": 4}, {"values": (-1.0, -1.0)}],
    ids=["outliers", "few steps", "at first only", "one value"],
)
def test_what_is_no_habit_is_left(more: dict[str, Any]) -> None:
    assert found_for(**more) == []


def test_both_ends_of_a_range_are_named() -> None:
    (found,) = found_for(high=1.0, above=100)
    assert found.message.startswith("40 % of the targets lie below 0 or above 1,")
    assert "between 0 and 1" in found.message


SEQUENTIAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    def forward(self, x):
        return self.head(x)
"""
WITHOUT = "        self.head = nn.Sequential(nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 2))"


def test_the_last_activation_is_taken_away() -> None:
    about = About(operands=("Net.head.3",))
    assert fixed_lines("TRN130", SEQUENTIAL, "return self.head", about=about)[1] == [WITHOUT]


@pytest.mark.parametrize("module", ["Net.head", "Net.head.1", "Net.inner.head.3"])
def test_another_activation_than_the_last_one_of_the_model_is_left(module: str) -> None:
    about = About(operands=(module,))
    assert fixed_lines("TRN130", SEQUENTIAL, "return self.head", about=about) == ([], [])


MADE_ELSEWHERE = [
    SEQUENTIAL.replace("nn.Sequential(nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())", "layers(6, 2, 2)"),
    SEQUENTIAL.replace("nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 2)", "*body, nn.Tanh(), nn.Linear(2, 2)"),
    SEQUENTIAL.replace("nn.ReLU())", "Own())"),
]


@pytest.mark.parametrize("text", MADE_ELSEWHERE)
def test_what_the_text_does_not_show_is_left(text: str) -> None:
    about = About(operands=("Net.head.3",))
    assert fixed_lines("TRN130", text, "return self.head", about=about) == ([], [])


@pytest.mark.parametrize(
    ("module", "call", "line"),
    [
        ("Net.head.3", "self.head(x)", 6),
        ("", "self.head(self.body(x))", 6),
        ("", "self.head(self.body(x)).abs()", None),
        ("Net.head.1", "self.head(x)", None),
    ],
)
def test_the_line_that_makes_the_activation(module: str, call: str, line: int | None) -> None:
    text = "from torch import nn\n" + SEQUENTIAL.replace("self.head(x)", call)
    at = activation_of(SourceFile("net.py", text), text[: text.index("return")].count("\n") + 1, module)
    assert (at.line if at is not None else None) == line
