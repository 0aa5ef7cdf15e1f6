"""TRN135: containers whose entries are one module, and such as share on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

from torchvet.rules import rule
from torchvet.source.model import SourceFile

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, width, out=1, drop=0.0):
        super().__init__()
        self.hidden, self.drop, self.out = nn.Linear(width, width), nn.Dropout(drop), nn.Linear(width, out)
    def forward(self, x, other=None):
        return self.out(self.drop(F.silu(self.hidden(x if other is None else x + other))))

names = ["a", "b", "c"]
body = nn.Linear(6, 8)
{made}
parts = nn.ModuleList([body, model])
rule = torch.optim.SGD(parts.parameters(), lr=0.01)
for step in range(16):
    x = torch.randn(32, 6)
    y = torch.randn(3, 32, 1)
    h = body(x)
    rule.zero_grad()
{step}
    loss.backward()
    rule.step()
"""
HEADS = "loss = sum(F.mse_loss(head(h), t) for head, t in zip(model, y))"
STACK = "for layer in model:\n    h = h + layer(h)\nloss = h.pow(2).mean()"
NAMED = "loss = sum(F.mse_loss(model[n](h), t) for n, t in zip(names, y))"

FAULTY = {
    "heads": ("model = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))] * 3)", HEADS),
    "classes of its own": ("model = nn.ModuleList(\n    3 * [Block(8)]\n)", HEADS),
    "a list with a name": ("n = 3\nlayers = [Block(8)] * n\nmodel = nn.ModuleList(layers)", HEADS),
    "a layer made before": ("one = Block(8)\nmodel = nn.ModuleList([one for _ in range(3)])", HEADS),
    "appended": (
        "one = Block(8)\nmodel = nn.ModuleList()\nfor _ in range(3):\n    model.append(one)",
        HEADS,
    ),
    "tasks by name": ("model = nn.ModuleDict(dict.fromkeys(names, nn.Linear(8, 1)))", NAMED),
    "heads of attention": (
        "model = nn.ModuleList([nn.Linear(8, 1)] * 3)",
        "loss = F.mse_loss(torch.cat([head(h) for head in model], 1), y[..., 0].T)",
    ),
    "in a class that shares its body": (
        "class SharedBottom(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.shared = nn.Linear(8, 8)\n"
        "        self.heads = nn.ModuleList([nn.Linear(self.shared.out_features, 1)] * 3)\n"
        "model = SharedBottom().heads",
        HEADS,
    ),
    "an ensemble on views": (
        "model = nn.ModuleList([nn.Linear(3, 1)] * 3)",
        "loss = sum(F.mse_loss(one(x[:, :3]), t) for one, t in zip(model, y)) + h.mean()",
    ),
}
LEFT = {
    "made anew": ("model = nn.ModuleList([Block(8) for _ in range(3)])", HEADS),
    "one layer in depth": ("one = Block(8, 8)\nmodel = nn.ModuleList([one for _ in range(3)])", STACK),
    "one layer in a Sequential": ("one = nn.Linear(8, 8)\nmodel = nn.Sequential(one, nn.ReLU(), one)", STACK),
    "activations": ("act = nn.ReLU()\nmodel = nn.ModuleList([act] * 3)", HEADS.replace("head(h)", "head(h)[:, :1]")),
    "dropout": (
        "model = nn.ModuleList([nn.Dropout(0.5)] * 3)",
        HEADS.replace("head(h)", "head(h)[:, :1]"),
    ),
    "said to be shared": ("shared_head = Block(8)\nmodel = nn.ModuleList([shared_head] * 3)", HEADS),
    "said in a comment": ("one = Block(8)\n# all tasks reuse one head\nmodel = nn.ModuleList([one] * 3)", HEADS),
    "named for each": ("one = Block(8)\nmodel = nn.ModuleDict({'a': one, 'b': one, 'c': one})", NAMED),
    "an input for each": (
        "one = Block(8)\nmodel = nn.ModuleList([one] * 3)",
        "loss = sum(F.mse_loss(head(h[k::3]), y[k, k::3]) for k, head in enumerate(model))",
    ),
    "a second argument": (
        "one = Block(8)\nmodel = nn.ModuleList([one] * 3)",
        "loss = sum(F.mse_loss(head(h, y[k].expand(-1, 8)), y[k]) for k, head in enumerate(model))",
    ),
    "one module called again": ("model = nn.Linear(8, 1)", "loss = sum(F.mse_loss(model(h), t) for t in y)"),
    "two passes": (
        "one = nn.Linear(8, 8)\nmodel = nn.Sequential(one, nn.Tanh(), one)",
        "loss = F.mse_loss(model(h), model(h).detach() + 1)",
    ),
    "positions that all look up": (
        "one = nn.Embedding(8, 8)\nmodel = nn.ModuleList([one] * 3)\nat = torch.arange(8)",
        "for table in model:\n    h = torch.tanh(h @ table(at))\nloss = h.pow(2).mean()",
    ),
    "one head behind each layer": (
        "head = nn.Linear(8, 1)\nlayers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])\n"
        "model = nn.ModuleList([head for _ in range(3)])",
        "loss = 0\nfor layer, head, t in zip(layers, model, y):\n    h = torch.tanh(layer(h))\n"
        "    loss = loss + F.mse_loss(head(h), t)",
    ),
    "experts on rows of their own": (
        "one = Block(8)\nmodel = nn.ModuleList([one] * 3)\ngate = torch.arange(32) % 3",
        "loss = sum(F.mse_loss(expert(h[gate == k]), y[k, gate == k]) for k, expert in enumerate(model))",
    ),
    "checkpoints": (
        "from torch.utils.checkpoint import checkpoint\none = Block(8, 8)\nmodel = nn.ModuleList([one] * 2)",
        "for layer in model:\n    h = h + checkpoint(layer, h, use_reentrant=False)\nloss = h.pow(2).mean()",
    ),
    "two views of a sample": (
        "one = Block(8)\nmodel = nn.ModuleDict(dict.fromkeys(['a', 'b'], one))",
        "loss = (model['a'](h) - model['b'](h + 0.1 * torch.randn_like(h)) - 1).pow(2).mean()",
    ),
    "albert": (
        "class Albert(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList([Block(8, 8)] * 3)\nmodel = Albert().layers",
        STACK,
    ),
    "noise of its own": (
        "class Noisy(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.out = nn.Linear(8, 1)\n    def forward(self, x):\n"
        "        return self.out(F.dropout(x, 0.2, self.training))\n"
        "one = Noisy()\nmodel = nn.ModuleList([one for _ in range(3)])",
        HEADS,
    ),
    "weights that change between": (
        "one = nn.Linear(8, 1)\nmodel = nn.ModuleList([one for _ in range(3)])",
        "loss = 0\nfor head, t in zip(model, y):\n    loss = loss + F.mse_loss(head(h), t)\n"
        "    head.weight.data = head.weight.data * 1.1",
    ),
    "without gradients": (
        "one = Block(8)\nmodel = nn.ModuleList([one] * 3)",
        "with torch.no_grad():\n    [head(h) for head in model]\nloss = F.mse_loss(model[0](h), y[0])",
    ),
}


def _text(made: str, step: str) -> str:
    return PROGRAM.format(made=made, step="\n".join(f"    {line}" for line in step.splitlines()))


def _found(folder: Path, made: str, step: str) -> list[dict[str, Any]]:
    findings = forked(_text(made, step), folder)
    assert findings is not None
    return [one for one in findings if one["code"] == "TRN135"]


@pytest.mark.parametrize(("made", "step"), FAULTY.values(), ids=FAULTY)
def test_entries_that_give_the_same_result_are_found(made: str, step: str, tmp_path: Path) -> None:
    (found,) = _found(tmp_path, made, step)
    assert (found["severity"], found["evidence"]) == ("warning", "observed")
    assert found["message"].startswith("3 entries of Module")
    assert "the same result 3 times" in found["message"]


@pytest.mark.parametrize(("made", "step"), LEFT.values(), ids=LEFT)
def test_others_are_left(made: str, step: str, tmp_path: Path) -> None:
    assert _found(tmp_path, made, step) == []


def test_keys_queries_and_values_are_enough_of_more_entries(tmp_path: Path) -> None:
    made = "one = nn.Linear(8, 8)\nmodel = nn.ModuleList([one for _ in range(4)])"
    attend = "q, k, v = (one(h) for one in list(model)[:3])\nloss = model[-1]((q @ k.T).softmax(-1) @ v).pow(2).mean()"
    (found,) = _found(tmp_path, made, attend)
    assert found["severity"] == "warning"
    assert "4 entries of ModuleList are one Linear, given the same input 3 times" in found["message"]


@pytest.mark.parametrize("layers", ["[module for _ in range(n)]", "[module] * n", "some"])
def test_a_function_that_is_to_copy(tmp_path: Path, layers: str) -> None:
    some = "some = [module] * n" if layers == "some" else "pass"
    made = f"def clones(module, n):\n    {some}\n    return nn.ModuleList({layers})\nmodel = clones(Block(8, 8), 3)"
    (found,) = _found(tmp_path, made, STACK)
    assert (found["severity"], found["evidence"]) == ("info", "observed")
    assert "clones" in found["location"]["function"]


def test_dropout_makes_it_a_note(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, "model = nn.ModuleList([Block(8, drop=0.1)] * 3)", HEADS)
    assert found["severity"] == "info"


def test_layers_in_depth_are_a_note(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, "model = nn.Sequential(*[nn.Linear(8, 8)] * 3)", "loss = model(h).pow(2).mean()")
    assert (found["severity"], found["evidence"]) == ("info", "observed")
    assert "72 parameters; 3 of its kind would have 216" in found["message"]


def _suspected(made: str) -> list[str]:
    text = _text(made, HEADS)
    found = list(rule("TRN135").in_source(SourceFile("train.py", text)))
    assert {one.severity for one in found} <= {"info"}
    return [one.remedy.edits[0].text if one.remedy.edits else "" for one in found]


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        ("model = nn.ModuleList([Block(8)] * 3)", "[Block(8) for _ in range(3)]"),
        ("model = nn.Sequential(*[nn.Linear(8, 8)] * depth)", "[nn.Linear(8, 8) for _ in range(depth)]"),
        (
            "model = nn.Sequential(*[nn.Linear(8, 8), nn.ReLU()] * 3)",
            "[part for _ in range(3) for part in (nn.Linear(8, 8), nn.ReLU())]",
        ),
        (
            "model = nn.ModuleDict(dict.fromkeys(names, Block(8)))",
            "{name: Block(8) for name in names}",
        ),
        ("from blocks import Layer\nmodel = nn.ModuleList([Layer(8)] * 3)", "[Layer(8) for _ in range(3)]"),
        ("one = [Block(8)] * 3\nmodel = nn.ModuleList([Block(8)] + one)", "[Block(8) for _ in range(3)]"),
    ],
)
def test_what_repeats_a_call_is_a_note_with_a_fix(made: str, fixed: str) -> None:
    assert _suspected(made) == [fixed]


@pytest.mark.parametrize(
    "made",
    [
        "model = nn.ModuleList([nn.ReLU()] * 3)",
        "model = nn.ModuleList([nn.Sequential(nn.ReLU(), nn.Dropout(0.1))] * 3)",
        "from blocks import Swish\nmodel = nn.ModuleList([Swish()] * 3)",
        "class Gate(nn.Module):\n    def forward(self, x):\n        return x * x\nmodel = nn.ModuleList([Gate()] * 3)",
        "model = nn.ModuleList([Block(8)] * 1)",
        "one = Block(8)\nmodel = nn.ModuleList([one for _ in range(3)])",
        "shared = nn.ModuleList([Block(8)] * 3)",
        "# one block for all,\n# whose weights are shared\nmodel = nn.ModuleList([Block(8)] * 3)",
        "def clones(module, n):\n    import copy\n"
        "    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])\nmodel = clones(Block(8), 3)",
        "def stack(module, n):\n    return nn.ModuleList([module for _ in range(n)])\nmodel = stack(Block(8), 3)",
        "share = True\nif share:\n    model = nn.ModuleList([Block(8)] * 3)",
        "flag = True\nmodel = nn.ModuleList([Block(8)] * 3 if flag else [Block(8) for _ in range(3)])",
        "widths = [8] * 3\nmodel = nn.ModuleList([Block(w) for w in widths])",
    ],
)
def test_source_is_silent(made: str) -> None:
    assert _suspected(made) == []
