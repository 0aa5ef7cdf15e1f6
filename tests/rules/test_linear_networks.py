"""Networks that are one affine map, and such as are not or mean to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import program, recording

from torchvet.finding import Finding
from torchvet.recording.records.base import Place
from torchvet.recording.records.layers import LinearNetwork
from torchvet.rules import rule

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
{made}
parts = nn.ModuleList([one for one in list(globals().values()) if isinstance(one, nn.Module)])
rule = torch.optim.SGD([p for p in parts.parameters() if p.requires_grad], lr=0.01)
for step in range(16):
    x = torch.randn(32, 6)
    y = x[:, :2] * x[:, 2:4]
    c = (y[:, 0] > 0).long()
    i = torch.randint(0, 20, (32, 3))
    rule.zero_grad()
{step}
    rule.step()
"""
MSE = "F.mse_loss(model(x), y).backward()"
CLASSES = "F.cross_entropy(model(x), c).backward()"
PLAIN = "model = nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 2))"
IDENTITY = "model = nn.Sequential(nn.Linear(6, 16), nn.Identity(), nn.Linear(16, 16), nn.Identity(), nn.Linear(16, 2))"
CONVOLUTIONS = """
model = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 8, 3, padding=1), nn.Identity(), nn.AvgPool1d(2),
                      nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))
"""
DISCARDED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 2)
    def forward(self, x):
        hidden = self.body(x)
        F.relu(hidden)
        return self.head(hidden)
model = Net()
"""
RESIDUAL = DISCARDED.replace("F.relu(hidden)", "hidden = hidden + self.side(hidden)").replace(
    "        self.body", "        self.side = nn.Linear(16, 16)\n        self.body"
)
NORMALIZED = "model = nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.Linear(16, 2))"

LINEAR = {
    "two layers": (PLAIN, MSE),
    "identities": (IDENTITY, CLASSES),
    "convolutions": (CONVOLUTIONS, CLASSES),
    "an activation whose result is thrown away": (DISCARDED, MSE),
    "residual": (RESIDUAL, MSE),
    "batch norm": (NORMALIZED, CLASSES),
    "dropout": (PLAIN.replace("nn.Linear(16", "nn.Dropout(0.2), nn.Linear(16"), CLASSES),
    "weights that are computed": (PLAIN + "\nnn.utils.parametrizations.weight_norm(model[0])", MSE),
    "a sigmoid at the end": (PLAIN, "F.binary_cross_entropy(torch.sigmoid(model(x)), (y > 0).float()).backward()"),
    "by hand": (PLAIN, "((model(x) - y) ** 2).mean().backward()"),
    "rounded": (
        PLAIN,
        "with torch.autocast('cpu', torch.bfloat16):\n    pred = model(x)\nF.mse_loss(pred.float(), y).backward()",
    ),
    "scaled": (PLAIN, "F.mse_loss(2 * model(x / 3) + 1, y).backward()"),
    "measured by what is cut off": (
        PLAIN,
        "pred = model(x)\nF.mse_loss(pred, y).backward()\n(pred.detach() - y).abs().mean()",
    ),
    "two heads": (
        "body, one, two = nn.Linear(6, 16), nn.Linear(16, 2), nn.Linear(16, 2)",
        "h = body(x)\n(F.mse_loss(one(h), y) + F.cross_entropy(two(h), c)).backward()",
    ),
    "smoothed labels": (PLAIN, "F.cross_entropy(model(x), c, label_smoothing=0.1).backward()"),
    "a decay of all weights in the loss": (
        PLAIN,
        "(F.mse_loss(model(x), y) + 1e-4 * sum(p.pow(2).sum() for p in model.parameters())).backward()",
    ),
    "two ways that are joined": (
        "one, two, model = nn.Linear(3, 16), nn.Linear(3, 16), nn.Linear(32, 2)",
        "F.mse_loss(model(torch.cat([one(x[:, :3]), two(x[:, 3:])], 1)), y).backward()",
    ),
    "axes that are turned and joined": (
        "one, model = nn.Linear(3, 16), nn.Linear(32, 2)",
        "F.mse_loss(model(one(x.view(32, 2, 3)).transpose(1, 2).flatten(1)), y).backward()",
    ),
    "sequences": (PLAIN, "F.mse_loss(model(x.view(8, 4, 6)), y.view(8, 4, 2)).backward()"),
}

ATTENTION = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.q, self.k, self.v, self.out = (nn.Linear(a, 8) for a in (6, 8, 8, 8, 8))
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        x = self.enter(x.view(8, 4, 6))
        {weights}
        return self.head(self.out(weights @ self.v(x)).mean(1))
model = Net()
"""
LORA = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 6).requires_grad_(False)
        self.a, self.b = nn.Linear(6, 1, bias=False), nn.Linear(1, 6, bias=False)
    def forward(self, x):
        return self.base(x) + self.b(self.a(x))
model = Net()
"""
TWO = "one, two = nn.Linear(6, 16), nn.Linear(16, 2)"
SELF = "F.mse_loss(model(x), x).backward()"
NOT_LINEAR = {
    "linear regression": ("model = nn.Linear(6, 2)", MSE),
    "logistic regression": (
        "model = nn.Linear(6, 1)",
        "F.binary_cross_entropy_with_logits(model(x)[:, 0], c.float()).backward()",
    ),
    "a layer behind a frozen one": (
        "model = nn.Sequential(nn.Linear(6, 16).requires_grad_(False), nn.Linear(16, 2))",
        MSE,
    ),
    "a low rank beside a frozen layer": (LORA, SELF),
    "a low rank": ("model = nn.Sequential(nn.Linear(6, 1, bias=False), nn.Linear(1, 2, bias=False))", MSE),
    "a linear autoencoder": ("model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(3, 6))", SELF),
    "an autoencoder of convolutions": (
        "model = nn.Sequential(nn.Conv1d(1, 2, 3, stride=3), nn.ConvTranspose1d(2, 1, 3, stride=3))",
        "F.mse_loss(model(x.unsqueeze(1)), x.unsqueeze(1)).backward()",
    ),
    "bilinear": (
        "model = nn.Bilinear(6, 6, 16)\nhead = nn.Linear(16, 2)",
        "F.mse_loss(head(model(x, x)), y).backward()",
    ),
    "gates": (
        "one, two, head = nn.Linear(6, 16), nn.Linear(6, 16), nn.Linear(16, 2)",
        "F.mse_loss(head(one(x) * two(x)), y).backward()",
    ),
    "gates of the input": (
        "one, head = nn.Linear(6, 6), nn.Linear(6, 2)",
        "F.mse_loss(head(one(x) * x), y).backward()",
    ),
    "products behind the last layers": (
        "one, two = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8)), nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8))",
        "F.mse_loss((one(x) * two(x)).sum(1), y[:, 0]).backward()",
    ),
    "contrasts": (
        "one, two = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8)), nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8))",
        "F.cross_entropy(one(x) @ two(x).T, torch.arange(32)).backward()",
    ),
    "attention": (
        ATTENTION.replace("{weights}", "weights = (self.q(x) @ self.k(x).mT).softmax(2)"),
        MSE.replace("y)", "y[:8])"),
    ),
    "linear attention": (
        ATTENTION.replace("{weights}", "weights = self.q(x) @ self.k(x).mT"),
        MSE.replace("y)", "y[:8])"),
    ),
    "factors of a matrix": (
        "one, two = nn.Embedding(20, 8), nn.Embedding(20, 8)",
        "F.mse_loss((one(i[:, 0]) * two(i[:, 1])).sum(1), y[:, 0]).backward()",
    ),
    "a lookup": (
        "table, model = nn.Embedding(20, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))",
        "F.mse_loss(model(table(i).mean(1)), y).backward()",
    ),
    "a lookup of sums": (
        "table, model = nn.EmbeddingBag(20, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))",
        "F.mse_loss(model(table(i)), y).backward()",
    ),
    "a lookup by index": (
        "table, model = nn.Linear(8, 20), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))",
        "F.mse_loss(model(table.weight[i[:, 0]]), y).backward()",
    ),
    "an activation": ("model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))", MSE),
    "an activation on one way": (
        "one, two, head = nn.Linear(6, 16), nn.Linear(6, 16), nn.Linear(16, 2)",
        "F.mse_loss(head(one(x) + F.relu(two(x))), y).backward()",
    ),
    "an activation in another part": (
        "body, model = nn.Linear(6, 16), nn.Sequential(nn.ReLU(), nn.Linear(16, 2))",
        "F.mse_loss(model(body(x)), y).backward()",
    ),
    "a projection at the end": (
        "model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 2))",
        MSE,
    ),
    "one activation of several": (
        "model = nn.Sequential(nn.Linear(6, 16), nn.Identity(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))",
        MSE,
    ),
    "pooling by maximum": (
        "model = nn.Sequential(nn.Conv1d(1, 8, 3), nn.MaxPool1d(4), nn.Flatten(), nn.Linear(8, 2))",
        "F.mse_loss(model(x.unsqueeze(1)), y).backward()",
    ),
    "layer norm": ("model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 2))", MSE),
    "a deep part without gradients": (
        "body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16))\n" + PLAIN.replace("6, 16", "16, 16"),
        "with torch.no_grad():\n    h = body(x)\nF.mse_loss(model(h), y).backward()",
    ),
    "a frozen deep part": (
        "body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16)).requires_grad_(False)\n"
        + PLAIN.replace("6, 16", "16, 16"),
        "F.mse_loss(model(body(x)), y).backward()",
    ),
    "a deep part that is cut off": (
        "body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16))\n" + PLAIN.replace("6, 16", "16, 16"),
        "h = body(x)\nF.mse_loss(model(h.detach()), y).backward()",
    ),
    "a penalty on what lies between": (
        "one, two = nn.Linear(6, 16), nn.Linear(16, 6)",
        "h = one(x)\n(F.mse_loss(two(h), x) + 0.01 * h.abs().mean()).backward()",
    ),
    "a layer that is applied again": (
        "model, head = nn.Linear(6, 6), nn.Linear(6, 2)",
        "F.mse_loss(head(model(model(x))), y).backward()",
    ),
    "a separable convolution": (
        "model = nn.Sequential(nn.Conv1d(2, 2, 3, groups=2), nn.Conv1d(2, 2, 1))",
        "F.mse_loss(model(x.view(32, 2, 3))[:, :, 0], y).backward()",
    ),
    "a straight-through sign": (
        TWO,
        "h = one(x)\nF.mse_loss(two(h + (h.sign() - h).detach()), y).backward()",
    ),
    "winners by a mask that is cut off": (
        TWO,
        "h = one(x)\nkeep = (h.detach() > 0).float()\nF.mse_loss(two(keep * h), y).backward()",
    ),
    "a mask by the data": (
        TWO,
        "h = one(x) * (x.repeat(1, 3)[:, :16] > 0).float()\nF.mse_loss(two(h), y).backward()",
    ),
    "clamped behind the graph": (
        TWO,
        "h = one(x)\nh.data.clamp_(min=0)\nF.mse_loss(two(h), y).backward()",
    ),
    "clamped without gradients": (
        TWO,
        "h = one(x)\nwith torch.no_grad():\n    h.clamp_(min=0)\nF.mse_loss(two(h), y).backward()",
    ),
    "clamped in front of a norm": (
        TWO + "\nnorm = nn.BatchNorm1d(16)",
        "h = one(x)\nh.data.clamp_(min=0)\nF.mse_loss(two(norm(h)), y).backward()",
    ),
    "the row that the data choose": (
        "one, two = nn.Linear(3, 16), nn.Linear(16, 2)",
        "h = one(x.view(32, 2, 3))\nF.mse_loss(two(h[torch.arange(32), (x[:, 0] > x[:, 3]).long()]), y).backward()",
    ),
    "rows, then columns": (
        "one, two = nn.Linear(3, 3), nn.Linear(2, 2)",
        "s = x.view(32, 2, 3)\nF.mse_loss(two(one(s).transpose(1, 2)).transpose(1, 2), s.flip(2)).backward()",
    ),
    "weights on both sides": (
        "one, two = nn.Linear(32, 32, bias=False), nn.Linear(6, 6, bias=False)",
        "F.mse_loss(one.weight @ x @ two.weight, x.flip(1)).backward()",
    ),
    "filters along one axis each": (
        "model = nn.Sequential(nn.Conv2d(1, 1, (3, 1)), nn.Conv2d(1, 1, (1, 3)))",
        "F.mse_loss(model(x.view(16, 1, 3, 4))[:, 0, 0], y.view(16, 4)[:, :2]).backward()",
    ),
    "a flow": (
        "one, two = nn.Linear(6, 6), nn.Linear(6, 6)",
        "far = (two(one(x)) - 1).pow(2).sum(1).mean()\n"
        "(far - sum(torch.linalg.slogdet(p.weight)[1] for p in (one, two))).backward()",
    ),
    "a penalty on the weights of one layer": (
        TWO,
        "(F.mse_loss(two(one(x)), y) + 0.01 * one.weight.pow(2).sum()).backward()",
    ),
    "a recurrent layer": (
        "body, model = nn.GRU(6, 8), nn.Linear(8, 2)",
        "F.mse_loss(model(body(x.view(8, 4, 6))[0]).view(32, 2), y).backward()",
    ),
    "no targets": (PLAIN, "model(x).sum().backward()"),
    "inputs that train": (
        "model = nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 2))\nz = nn.Parameter(torch.randn(32, 6))",
        "F.mse_loss(model(z), y).backward()",
    ),
}


def _found(folder: Path, made: str, step: str) -> list[dict[str, Any]]:
    text = PROGRAM.format(made=made, step="\n".join(f"    {line}" for line in step.splitlines()))
    findings = forked(text, folder)
    assert findings is not None
    return [one for one in findings if one["code"] == "TRN132"]


@pytest.mark.parametrize(("made", "step"), LINEAR.values(), ids=LINEAR)
def test_a_linear_network_is_found(made: str, step: str, tmp_path: Path) -> None:
    (found,) = _found(tmp_path, made, step)
    assert found["severity"] == "warning"
    assert "nothing nonlinear between them" in found["message"]


@pytest.mark.parametrize(("made", "step"), NOT_LINEAR.values(), ids=NOT_LINEAR)
def test_others_are_left(made: str, step: str, tmp_path: Path) -> None:
    assert _found(tmp_path, made, step) == []


def test_identities_are_named_with_the_line_that_makes_them(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, IDENTITY, CLASSES)
    assert found["message"].startswith(
        "3 weight layers in a row and nothing nonlinear between them: the network is one "
    )
    assert found["message"].endswith("affine map of 6 inputs to 2 outputs")
    assert "`1` and `3` are `nn.Identity`, which does nothing" in found["cause"]
    lines = (tmp_path / "program.py").read_text().splitlines()
    assert "model(x)" in lines[found["location"]["line"] - 1]
    assert ["nn.Identity()" in lines[one["line"] - 1] for one in found["related"]] == [True]


def test_heads_are_outputs_together(tmp_path: Path) -> None:
    made = "body, heads = nn.Linear(6, 16), nn.ModuleList([nn.Linear(16, 1) for _ in range(2)])"
    (found,) = _found(tmp_path, made, "h = body(x)\nF.mse_loss(torch.cat([one(h) for one in heads], 1), y).backward()")
    assert found["message"].endswith("one affine map of 6 inputs to 2 outputs")


def found_for(**more: Any) -> list[Finding]:
    facts: dict[str, Any] = {
        "layers": 2,
        "enter": 6,
        "leave": 2,
        "weights": ("0.weight", "2.weight"),
        "steps": 8,
        **more,
    }
    seen = LinearNetwork(place=Place("/a/train.py", 9, "forward"), **facts)
    return list(rule("TRN132").in_recording(recording(program(), seen)))


def test_few_steps_are_no_habit() -> None:
    assert found_for(steps=2) == []
    assert len(found_for(steps=3)) == 1


def test_what_stands_between_is_named() -> None:
    (one,) = found_for(identities=["net.1"])
    assert one.cause.startswith("`net.1` is `nn.Identity`, which does nothing: one layer could do what the 2 do, ")
    (many,) = found_for(identities=[f"net.{n}" for n in range(5)])
    assert many.cause.startswith("`net.0`, `net.1` and 3 more are `nn.Identity`")
    (none,) = found_for(convolves=True)
    assert none.cause.startswith("one layer could do")
    assert "one affine map of its input to 2 outputs" in none.message
