"""NUM110: logarithms of what can be 0, and of what is kept above it."""

from __future__ import annotations

import pytest
import torch

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import math\nimport numpy as np\nimport torch\n\ndef loss(x, y, size, labels):\n"
FAULTY = {
    "one minus an exponential": ("return torch.log(1 - torch.exp(x))", ["return torch.log1p(-torch.exp(x))"]),
    "as methods": ("return (1.0 - x.exp()).log()", []),
    "under a name": ("p = torch.exp(x)\n    return torch.log(1 - p)", []),
    "a sum with a mask of other samples": (
        "mask = 1 - torch.eye(len(x))\n    terms = torch.exp(x) * mask\n"
        "    return x - torch.log(terms.sum(1, keepdim=True))",
        [],
    ),
    "a sum with a comparison": ("return torch.log((x.exp() * (labels != y)).sum(1))", []),
    "a sum with zeros put into ones": (
        "keep = torch.scatter(torch.ones_like(x), 1, y, 0)\n    return torch.log(torch.sum(torch.exp(x) * keep, 1))",
        [],
    ),
    "the width of a box": ("w = (x[:, 2:] - x[:, :2]) / size\n    return torch.log(w)", []),
    "the width in pixels": ("w = x[:, 2] - x[:, 0]\n    return torch.log(w / size)", []),
}

HEALTHY = {
    "log1p": "return torch.log1p(-torch.exp(x))",
    "expm1": "return torch.log(-torch.expm1(x))",
    "one minus a probability": "return torch.log(1 - x)",
    "a clamp": "return torch.log((1 - torch.exp(x)).clamp(min=1e-6))",
    "a number is added to the sum": (
        "mask = 1 - torch.eye(len(x))\n    return torch.log((torch.exp(x) * mask).sum(1) + 1e-6)"
    ),
    "weights": "return torch.log((torch.exp(x) * size).sum(1))",
    "an added pixel": "w = x[:, 2] - x[:, 0] + 1\n    return torch.log(w / size)",
    "a clamped width": "w = (x[:, 2] - x[:, 0]).clamp(min=1)\n    return torch.log(w / size)",
    "steps of a sequence": "return torch.log(x[..., 1:] - x[..., :-1])",
    "an interval": "return (x[1] - x[0]).log()",
    "two tensors": "return torch.log(x[:, 2] - y[:, 0])",
    "numbers of Python": "return math.log(1 - math.exp(-2)) + np.log(1 - np.exp(-3))",
    "a logger": "self = x\n    self.log(1 - torch.exp(x), y)\n    return x",
}


def found(code: str) -> list[tuple[str, list[str]]]:
    text = HEAD + f"    {code}\n"
    rows = text.split("\n")
    results = []
    for finding in rule("NUM110").in_source(SourceFile("loss.py", text)):
        fixed = []
        for edit in finding.remedy.edits:
            row = rows[edit.start[0] - 1]
            fixed.append((row[: edit.start[1] - 1] + edit.text + row[edit.end[1] - 1 :]).strip())
        results.append((finding.severity, fixed))
    return results


@pytest.mark.parametrize("name", FAULTY)
def test_logarithms_of_what_can_be_zero(name: str) -> None:
    code, fixed = FAULTY[name]
    assert found(code) == [("info", fixed)]


@pytest.mark.parametrize("name", HEALTHY)
def test_logarithms_of_what_is_kept_above_it(name: str) -> None:
    assert not found(HEALTHY[name])


def test_what_torch_gives() -> None:
    small, near = torch.tensor(-20.0), torch.tensor(-2e-8)
    assert torch.log(1 - torch.exp(small)) == 0 and torch.log1p(-torch.exp(small)) < -2e-9
    assert torch.log(1 - torch.exp(near)) == -torch.inf and torch.log(-torch.expm1(near)) > -18
