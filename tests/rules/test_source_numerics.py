"""What the numerics rules tell from source: dtypes followed through names, and formulas that only look unstable."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile


def found(code: str, text: str) -> list[Finding]:
    return list(rule(code).in_source(SourceFile("train.py", "import torch\nimport torch.nn.functional as F\n" + text)))


@pytest.mark.parametrize(
    ("text", "times"),
    [("h = x.half()\nu = h / (h.norm() + 1e-8)\n", 1),
     ("h = x.half()\nu = h / (h.norm() + 1e-6)\n", 0),
     ("h = x.bfloat16()\nu = h / (h.norm() + 1e-8)\n", 0),
     ("h = x.half()\nh = h.float()\nu = h / (h.norm() + 1e-8)\n", 0),
     ("h = x.to(torch.float16)\nu = F.normalize(h, dim=1)\n", 1),
     ("h = x.to(torch.float16)\nu = F.layer_norm(h, (8,), eps=1e-12)\n", 0),
     ("EPS = 1e-10\nh = torch.zeros(4, dtype=torch.half)\nu = torch.log(h + EPS)\n", 1)],
)  # fmt: skip
def test_eps_is_judged_by_the_dtype_that_it_is_added_to(text: str, times: int) -> None:
    assert len(found("NUM103", text)) == times


@pytest.mark.parametrize(
    ("text", "severities"),
    [("model = Net().cuda().half()\no = torch.optim.AdamW(model.parameters())\n", ["error"]),
     ("model = Net().bfloat16()\no = torch.optim.AdamW(model.parameters())\n", ["info"]),
     ("model = Net()\nif fp16:\n    model.half()\no = torch.optim.AdamW(model.parameters())\n", []),
     ("model = Net().half()\no = torch.optim.AdamW(model.parameters(), fused=True)\n", []),
     ("model = Net().half()\no = torch.optim.SGD(model.parameters(), lr=1)\n", []),
     ("model = Net()\no = torch.optim.AdamW(model.parameters())\ntrain(o)\nmodel.half()\n", []),
     ("model = Net().half()\no = FP16_Optimizer(torch.optim.Adam(model.parameters()))\n", [])],
)  # fmt: skip
def test_an_optimizer_is_judged_by_the_weights_that_it_is_given(text: str, severities: list[str]) -> None:
    assert [f.severity for f in found("NUM104", text)] == severities


def test_a_mask_is_judged_by_where_the_model_runs() -> None:
    text = """\
class Attention(torch.nn.Module):
    def forward(self, q, k, mask):
        scores = q @ k.transpose(1, 2)
        return scores.masked_fill(mask, -1e9).softmax(-1)
attention = Attention()
with torch.autocast("cuda", dtype=torch.{dtype}):
    out = attention(q, k, mask)
"""
    assert len(found("NUM105", text.format(dtype="float16"))) == 1
    assert found("NUM105", text.format(dtype="bfloat16")) == []
    assert found("NUM105", text.format(dtype="float16").replace("-1e9", "float('-inf')")) == []


def test_few_terms_are_no_accumulation() -> None:
    assert found("NUM107", "x = x.bfloat16()\nfor layer in layers:\n    x += layer(x)\n") == []
    start = "t = torch.zeros(1, dtype=torch.bfloat16)\n"
    assert found("NUM107", start + "for i in range(4):\n    t += f(i)\n") == []
    assert len(found("NUM107", start + "for x in loader:\n    t += f(x)\n")) == 1


@pytest.mark.parametrize(
    ("condition", "severities"),
    [("i % 8 == 0", []), ("i % 200 == 0", ["info"]), ("i % 4000 == 0", ["warning"]), ("i % every == 0", ["info"]),
     ("i in late", ["warning"])],
)  # fmt: skip
def test_a_sum_that_is_set_to_zero_is_judged_by_how_often(condition: str, severities: list[str]) -> None:
    loop = f"""\
t = torch.zeros(1, dtype=torch.bfloat16)
for i, x in enumerate(loader):
    if {condition}:
        t.zero_()
    t += f(x)
"""
    method = f"""\
class Meter:
    def __init__(self):
        self.t = torch.zeros(1, dtype=torch.bfloat16)
    def add(self, i, x):
        self.t += f(x)
        self.show(i)
    def show(self, i):
        if {condition}:
            self.t = torch.zeros(1, dtype=torch.bfloat16)
"""
    assert [f.severity for f in found("NUM107", loop)] == severities
    assert [f.severity for f in found("NUM107", method)] == severities


@pytest.mark.parametrize(
    ("text", "severities"),
    [("p = torch.arange(256, dtype=torch.bfloat16)\n", []), ("p = torch.arange(0, 512, 2).bfloat16()\n", []),
     ("p = torch.arange(300).to(torch.bfloat16)\n", ["warning"]), ("p = torch.arange(2049).half()\n", []),
     ("p = torch.arange(n, dtype=torch.half)\n", ["info"]), ("p = torch.arange(4096).float()\nh = x.half()\n", [])],
)  # fmt: skip
def test_positions_are_judged_by_their_range(text: str, severities: list[str]) -> None:
    assert [f.severity for f in found("NUM109", text)] == severities


ROTARY = """\
LONGEST = 2048
class Rotary(torch.nn.Module):
    def __init__(self, longest=LONGEST, dtype=torch.float32):
        super().__init__()
        self.make(longest, dtype)
    def make(self, length, dtype):
        self.table = torch.arange(length, dtype=dtype)
class Model(torch.nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.rotary = Rotary({given})
model = Model({own})
"""


@pytest.mark.parametrize(
    ("given", "own", "severities"),
    [("dtype=dtype", "", ["warning"]), ("200, dtype", "", []), ("n, dtype", "", ["info"]), ("", "", []),
     ("dtype=dtype", "torch.float32", []), ("dtype=torch.float32", "", [])],
)  # fmt: skip
def test_positions_are_judged_by_what_parameters_are_given(given: str, own: str, severities: list[str]) -> None:
    assert [f.severity for f in found("NUM109", ROTARY.format(given=given, own=own))] == severities


@pytest.mark.parametrize(
    "text",
    ["m = x.max(-1, keepdim=True).values\ne = torch.exp(x - m)\np = e / e.sum(-1, keepdim=True)\n",
     "l = torch.log(torch.exp(x - c).sum()) + c\n", "s = torch.log1p(torch.exp(-x.abs()))\n",
     "k = torch.exp(-d)\nw = k / k.sum()\n", "import numpy as np\np = np.log(softmax(x))\n",
     "p = F.softmax(x, -1)\nl = torch.log(p.clamp(min=1e-6))\n", "l = torch.log(counts.gather(1, y).squeeze(1))\n",
     "p = F.softmax(x, -1).gather(1, y).clamp(min=1e-6)\nl = torch.log(p[:, 0])\n",
     "r = torch.sqrt((x ** 2).sum() + 1e-8)\n"],
)  # fmt: skip
def test_stable_formulas_stay_silent(text: str) -> None:
    assert found("NUM110", text) == []


@pytest.mark.parametrize(
    "text",
    ["p = torch.softmax(x, 1).gather(1, y[:, None]).squeeze(1)\nl = -((1 - p) ** 2 * torch.log(p)).mean()\n",
     "p = x.softmax(-1)\nl = -p[rows, y].log().mean()\n", "l = torch.gather(F.softmax(x, 1), 1, y).log()\n"],
)  # fmt: skip
def test_what_is_picked_out_of_a_softmax_underflows_too(text: str) -> None:
    assert [f.severity for f in found("NUM110", text)] == ["warning"]


@pytest.mark.parametrize(
    ("text", "times"),
    [("y = torch.where(x > 0, torch.log(x), 0.0)\ny.sum().backward()\n", 1),
     ("y = torch.where(x > 0, torch.log(x.clamp(min=1e-6)), 0.0)\ny.sum().backward()\n", 0),
     ("s = torch.where(x > 0, x, 1.0)\ny = torch.where(x > 0, torch.log(s), 0.0)\ny.sum().backward()\n", 0),
     ("with torch.no_grad():\n    y = torch.where(x > 0, torch.log(x), 0.0)\n", 0),
     ("y = torch.where(m, a / b, 0.0)\ny.sum().backward()\n", 0),
     ("y = torch.where(x > 0, x / 2, x * x)\ny.sum().backward()\n", 0),
     ("y = torch.where(b != 0, a / b, 0.0)\ny.sum().backward()\n", 1)],
)  # fmt: skip
def test_where_hides_what_the_condition_is_about(text: str, times: int) -> None:
    assert len(found("NUM111", text)) == times
