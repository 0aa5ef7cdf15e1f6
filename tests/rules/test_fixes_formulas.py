"""NUM110's edits: the stable function in the formula's place, and the formula left alone where that is not certain."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"

FIXED = [
    ("torch.exp(x) / torch.exp(x).sum(1, keepdim=True)", "torch.softmax(x, 1)"),
    ("e / e.sum(dim=-1, keepdim=True)", "torch.softmax(x, -1)"),
    ("e / torch.sum(e, d, True)", "torch.softmax(x, d)"),
    ("torch.log(torch.sigmoid(x))", "F.logsigmoid(x)"),
    ("x.sigmoid().log()", "F.logsigmoid(x)"),
    ("torch.log(1 + torch.exp(x - 1))", "F.softplus(x - 1)"),
    ("torch.log1p(x.exp())", "F.softplus(x)"),
    ("torch.log(x.exp().sum(-1))", "torch.logsumexp(x, -1)"),
    ("x.exp().sum(dim=1, keepdim=True).log()", "torch.logsumexp(x, 1, keepdim=True)"),
]

LEFT_ALONE = [
    "e / e.sum(1)",
    "torch.log(torch.exp(x).sum())",
    "torch.log(torch.exp(x).sum((0, 1)))",
    "torch.log(torch.sigmoid(x).gather(1, y))",
    "torch.log(torch.exp(\n        x).sum(1))",
    "other / other.sum(1, keepdim=True)",
]


def program(expression: str, head: str = HEAD) -> str:
    return (
        f"{head}\ndef f(x, y, d=1):\n    e = torch.exp(x)\n    other = torch.exp(x)\n    x = x + 0\n"
        f"    e = torch.exp(x)\n    return {expression}\n"
    )


def fixed(text: str) -> str:
    findings = list(rule("NUM110").in_source(SourceFile("t.py", text)))
    lines = text.splitlines(keepends=True)
    for edit in (e for f in findings for e in f.remedy.edits):
        (row, first), (last_row, last) = edit.start, edit.end
        assert row == last_row
        lines[row - 1] = lines[row - 1][: first - 1] + edit.text + lines[row - 1][last - 1 :]
    return "".join(lines)


def computed(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(text, "t.py", "exec"), names)
    return names["f"](torch.linspace(-3, 3, 12).reshape(3, 4), torch.zeros(3, 1, dtype=torch.long))


@pytest.mark.parametrize(("expression", "twin"), FIXED)
def test_the_stable_function_gives_the_same_where_the_formula_can_be_computed(expression: str, twin: str) -> None:
    after = fixed(program(expression))
    assert after.endswith(f"    return {twin}\n")
    torch.testing.assert_close(computed(after), computed(program(expression)))
    assert not [f for f in rule("NUM110").in_source(SourceFile("t.py", after)) if f.remedy.edits]


@pytest.mark.parametrize("expression", LEFT_ALONE)
def test_what_is_not_certain_is_left_alone(expression: str) -> None:
    """No dimension, several, elements picked out, several lines, a name that was bound anew since."""
    assert fixed(program(expression)) == program(expression)


@pytest.mark.parametrize(("head", "called"), [
    ("import torch\n", "torch.nn.functional.softplus"), ("import torch as th\n", "th.nn.functional.softplus"),
    ("import torch\nfrom torch import nn\n", "nn.functional.softplus"),
    ("import torch\nfrom torch.nn import functional\n", "functional.softplus"),
])  # fmt: skip
def test_the_function_goes_by_the_names_that_the_file_imports(head: str, called: str) -> None:
    text = f"{head}\ndef f(x):\n    return {'th' if ' as th' in head else 'torch'}.log1p(x.exp())\n"
    assert fixed(text).endswith(f"return {called}(x)\n")
