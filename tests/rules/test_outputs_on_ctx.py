"""MEM107 in source: which of several outputs a Function keeps on its `ctx`."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

PAIR = """\
import torch

class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, parts):
        first, second = x.exp(), x.sqrt()
        ctx.second = second
        return first, second

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.second, None
"""

SOLVED = """\
import torch
from other import solve

class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, steps):
        with torch.no_grad():
            both = solve(x, steps)
            end, path = both
            ctx.end = end
        ctx.save_for_backward(x, path)
        return both

    @staticmethod
    def backward(ctx, g, h):
        end = ctx.end
        return g * end.reshape(-1), None
"""

AFTER = """\
import torch
from other import solve

class Solve(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return solve(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        end, path = output
        ctx.end = end

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.end.view(-1)
"""


def found(text: str) -> list[Finding]:
    return list(rule("MEM107").in_source(SourceFile("train.py", text)))


@pytest.mark.parametrize("text, severity", [(PAIR, "warning"), (SOLVED, "info"), (AFTER, "info")])
def test_a_later_output_on_ctx(text: str, severity: str) -> None:
    assert [f.severity for f in found(text)] == [severity]


SILENT = {
    "saved": PAIR.replace("ctx.second = second", "ctx.save_for_backward(second)").replace(
        "ctx.second", "ctx.saved_tensors[0]"
    ),
    "indices": PAIR.replace("x.exp(), x.sqrt()", "x.max(1)"),
    "marked": PAIR.replace("        return first", "        ctx.mark_non_differentiable(second)\n        return first"),
    "no output": PAIR.replace("return first, second", "return first"),
    "what backward uses as a number": SOLVED.replace("end.reshape(-1)", "end"),
    "released by backward": SOLVED.replace("        return g *", "        del ctx.end\n        return g *"),
    "unpacked from what is not returned": SOLVED.replace("return both", "return path"),
    "bound anew": SOLVED.replace("        return both", "        both = (end.clone(), path)\n        return both"),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_look_alikes(text: str) -> None:
    assert not found(text)
