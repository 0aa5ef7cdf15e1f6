"""Statements whose result is thrown away: such as do nothing, and such as are there for something else."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import time
import numpy as np
import torch
import torch.nn.functional as F
from boxes import Boxes
from torch import nn
"""
FAULTY = {
    "a mask": (
        "def attend(q, k, v, mask):\n    scores = torch.einsum('id,jd->ij', q, k) * 0.5\n"
        "    scores.masked_fill(mask, -1e9)\n    return scores.softmax(-1) @ v\n",
        "warning",
    ),
    "a bound by a function": (
        "def act(x):\n    torch.clamp(x, 0, 1)\n    return x * 2\n",
        "warning",
    ),
    "dropout": (
        "class Head(nn.Module):\n    def forward(self, x):\n"
        "        F.dropout(x, 0.5, training=self.training)\n        return x\n",
        "warning",
    ),
    "an axis, of a parameter that says nothing": (
        "def batch(x):\n    if x.dim() == 1:\n        x.unsqueeze(0)\n    else:\n        x = x.t()\n    return x\n",
        "info",
    ),
    "what may be a builder, by the name of its methods": (
        "def build(made):\n    made.view(1)\n    made.permute(0, 1)\n    return made\n",
        "info",
    ),
    "a state, in a loop that comes round": (
        "def run(cell, xs):\n    h = torch.zeros(1, 8)\n    for x in xs:\n        y = cell(x, h)\n        h.detach()\n",
        "warning",
    ),
    "behind a test on the same line": ("def f(x: torch.Tensor):\n    if x.ndim: x.clamp(0)\n    return x\n", "warning"),
    "several methods": ("def f(x: torch.Tensor):\n    x.view(-1).clamp(0)\n    return x\n", "warning"),
    "a copy": ("def f(x: torch.Tensor):\n    x.transpose(0, 1)\n    x.contiguous()\n    return x\n", "info"),
    "nobody reads it": ("def f(x: torch.Tensor):\n    x.clamp(0)\n", "info"),
}
HEALTHY = {
    "in place": "def f(x: torch.Tensor):\n    x.clamp_(0)\n    F.relu_(x)\n    return x\n",
    "an output is given": (
        "def f(x: torch.Tensor, y):\n    torch.clamp(x, 0, out=y)\n    torch.exp(x, out=x)\n    return x\n"
    ),
    "in place by a word": (
        "def f(x, boxes):\n    F.relu(x, inplace=True)\n    boxes.clamp(0, 1, inplace=True)\n    return x\n"
    ),
    "arrays": (
        "def f(x):\n    np.clip(x, 0, 1, x)\n    np.fill_diagonal(x, 0)\n    x.sort()\n    x.fill(0)\n    return x\n"
    ),
    "a class of its own": (
        "class Box:\n    def clamp(self, low):\n        self.low = low\n\n"
        "def f(box: Box):\n    box.clamp(0)\n    return box\n"
    ),
    "somebody else's class": "def f():\n    boxes = Boxes(4)\n    boxes.clamp(0, 1)\n    return boxes\n",
    "somebody else's annotation": "def f(boxes: Boxes):\n    boxes.clamp(0, 1)\n    return boxes\n",
    "an accelerator": "def f(accelerator, loss):\n    accelerator.backward(loss)\n    accelerator.log({})\n",
    "a timed loop": (
        "def f(x: torch.Tensor):\n    start = time.time()\n    for _ in range(9):\n        x.clamp(0)\n"
        "    return time.time() - start, x\n"
    ),
    "a warm-up": "def warm_up(x: torch.Tensor):\n    torch.softmax(x, 0)\n    return x\n",
    "what it raises": (
        "def fits(x: torch.Tensor):\n    try:\n        x.view(-1)\n    except RuntimeError:\n        return False\n"
        "    return x\n"
    ),
    "a block that expects it": (
        "def f(self, x: torch.Tensor):\n    with self.assertRaises(RuntimeError):\n        x.view(7)\n    x.sum()\n"
    ),
    "a class with such methods": (
        "class Canvas:\n    def __init__(self):\n        self.t = torch.zeros(3)\n"
        "    def clamp(self, low):\n        self.t.clamp_(low)\n"
        "    def clip(self, low):\n        self.clamp(low)\n        return self\n"
    ),
    "a class that has them from elsewhere": (
        "class Mask(Boxes):\n    def grow(self, n):\n        self.clamp(n)\n        self.expand(n)\n"
        "        return self.view(n)\n"
    ),
    "a check of shapes": (
        "def check_shapes(x: torch.Tensor, n):\n    x.expand(n, -1)\n    x.view(n, -1)\n    return x\n"
    ),
    "before the clock": "def warm(n):\n    x = torch.randn(n)\n    torch.softmax(x, 0)\n    return x\n",
    "calls that something sees": (
        "class Logged(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, t, args=(), kwargs=None):\n"
        "        print(f)\nx = torch.randn(3)\ndef run():\n    y = torch.randn(3)\n    torch.relu(y)\n    return y\n"
    ),
    "a profiler": "def f(x: torch.Tensor):\n    with torch.profiler.profile():\n        x.clamp(0)\n    return x\n",
    "an argument on its own line": "def f(g, x: torch.Tensor):\n    return g(\n        x.clamp(0),\n    )\n",
    "bound": "def f(x: torch.Tensor):\n    x = x.clamp(0)\n    y = torch.exp(x)\n    return y\n",
    "a cell's last line": "# %%\nx = torch.zeros(3)\nx.unsqueeze(0)\n# %%\nprint(x)\n",
    "a layer is run for its hooks": (
        "class A(nn.Module):\n    def forward(self, x):\n        self.relu(x)\n        return x\n"
    ),
}


def found(code: str, path: str = "train.py") -> list[str]:
    return [f.severity for f in rule("TRN129").in_source(SourceFile(path, HEAD + code))]


@pytest.mark.parametrize("name", FAULTY)
def test_a_line_that_does_nothing_is_found(name: str) -> None:
    code, severity = FAULTY[name]
    assert found(code)[-1:] == [severity]


@pytest.mark.parametrize("name", HEALTHY)
def test_what_does_something_is_not(name: str) -> None:
    assert not found(HEALTHY[name])


@pytest.mark.parametrize("path", ["test_clamp.py", "tests/clamp_test.py", "benchmarks/clamp.py", "notebook.ipynb"])
def test_tests_benchmarks_and_notebooks_show_things(path: str) -> None:
    assert not found("x = torch.zeros(3)\ntorch.exp(x)\nprint(x)\n", path)


def test_the_edit_binds_the_result_and_leaves_parameters_alone() -> None:
    bound = "def f(x: torch.Tensor):\n    x.clamp(0)\n    return x\n"
    (finding,) = rule("TRN129").in_source(SourceFile("train.py", HEAD + bound))
    assert [e.text for e in finding.remedy.edits] == ["x = x.clamp(0)"] and not finding.remedy.safe
    weight = (
        "class Head(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.ones(1))\n\n"
        "    def forward(self, x):\n        torch.clamp(self.w, 1e-6)\n        return self.w * x\n"
    )
    (finding,) = rule("TRN129").in_source(SourceFile("train.py", HEAD + weight))
    assert not finding.remedy.edits and "self.w.clamp_(...)" in finding.remedy.summary
