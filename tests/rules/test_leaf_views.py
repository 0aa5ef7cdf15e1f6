"""OPS208 on views of parameters: found where torch raises, silent where it does not."""

from __future__ import annotations

import pytest
import torch

from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

TEXT = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)
        self.scale = nn.Parameter(torch.ones(6))
        self.plain = torch.ones(6)
        self.start()

    def start(self):
        {start}

    def forward(self, x):
        {body}
        return x
"""
BODIES = [
    "w = self.scale.view(2, 3); w[0] += 1",
    "w = self.scale.reshape(2, 3).t(); w += 1",
    "w = self.scale[:2]; w.zero_()",
    "self.scale.view(-1).fill_(0)",
    "w = self.scale.view(2, 3); v = w[0]; v.mul_(2)",
    "self.head.bias[0] += 1",
    "self.head.weight *= 2",
    "b = self.head.bias.view(2, 2); b[:, 1] += 1; self.head.bias = nn.Parameter(b.view(-1))",
    "for p in self.parameters():;     v = p.view(-1);     v += 1",
    # Nothing raises:
    "w = self.scale.data.view(2, 3); w[0] += 1",
    "w = self.scale.detach().view(2, 3); w += 1",
    "w = self.scale.view(2, 3).clone(); w += 1",
    "w = self.scale[[0, 1]]; w += 1",
    "w = self.plain.view(2, 3); w += 1",
    "w = self.scale.view(2, 3); w = w * 2; w += 1",
    "with torch.no_grad():;     w = self.scale.view(2, 3);     w[0] += 1",
    "self.head.bias.data[0] += 1",
    "b = self.head.bias.data.view(2, 2); b[:, 1] += 1; self.head.bias = nn.Parameter(b.view(-1))",
    "x[:, 0] += self.scale[0]",
    "w = self.scale * 2; w = w.view(2, 3); w += 1",
    "t = self.plain.t(); t += 1; self.plain = nn.Parameter(t)",
]


def findings(text: str) -> list[str]:
    return [f"{f.severity} {f.message}" for f in rule("OPS208").in_source(SourceFile("t.py", text))]


def raises(text: str) -> bool:
    names: dict[str, type[torch.nn.Module]] = {}
    exec(text, names)
    try:
        names["Net"]()(torch.ones(2, 3))
    except RuntimeError as error:
        return "leaf Variable that requires grad" in str(error)
    return False


def program(lines: str, where: str) -> str:
    text = "\n        ".join(lines.split("; ")).replace(":;", ":\n        ").replace(";     ", "\n            ")
    other = "start" if where == "body" else "body"
    return TEXT.replace(f"{{{where}}}", text).replace(f"{{{other}}}", "pass")


@pytest.mark.parametrize("lines", BODIES)
def test_what_is_found_is_what_raises(lines: str) -> None:
    text = program(lines, "body")
    assert bool(findings(text)) is raises(text)


def test_a_function_that_the_file_calls_is_seen() -> None:
    text = program("b = self.head.bias.view(2, 2); b[:, 1] += 1; b[:, 0] += 1", "start")
    (one,) = findings(text)
    assert one.startswith("error b is a view of self.head.bias, a leaf")
    (finding,) = rule("OPS208").in_source(SourceFile("t.py", text))
    fixed = apply({"t.py": text}, [finding])[0]["t.py"]
    assert "b = self.head.bias.detach().view(2, 2)" in fixed
    assert not findings(fixed) and not raises(fixed)


def test_a_layer_from_elsewhere_is_a_parameter_by_what_is_assigned_to_it() -> None:
    lines = "b = self.other.bias.view(2, 2); b += 1; self.other.bias = nn.Parameter(b)"
    (one,) = findings(program(lines, "start"))
    assert one.startswith("warning") and one.endswith("if self.other.bias is a parameter already and autograd records")


def test_a_function_that_nothing_here_calls_may_run_without_gradients() -> None:
    text = program("self.head.bias[0] += 1", "start").replace("        self.start()\n", "")
    (one,) = findings(text)
    assert one.startswith("info self.head.bias is a leaf")


def test_frozen_layers_are_left_alone() -> None:
    text = program("self.head.bias[0] += 1", "body")
    assert findings(text.replace("self.start()", "self.head.requires_grad_(False)")) == []
