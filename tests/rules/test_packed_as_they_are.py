"""Hooks for saved tensors that hand back the tensor itself: an output then keeps itself, through C++."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_runs import forked

from torchvet.finding import Finding
from torchvet.fixing.edits import apply

PROGRAM = """\
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
{before}

torch.manual_seed(0)
model, judge = nn.Linear(16, 64), nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(60):
    x = torch.randn(32, 16)
    hidden = model(x)
    loss = hidden.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with {hooks}:
        score = judge(hidden.detach()).{operator}().mean()
    {after}
"""
COUNTER = """
class Counter:
    def __init__(self):
        self.tensors = 0

    def pack(self, tensor):
        self.tensors += 1
        return tensor

    @staticmethod
    def unpack(packed):
        return packed

counter = Counter()
"""
OTHER = """
def other_pack(t):
    return t

def unused():
    return saved_tensors_hooks(other_pack, lambda p: p + 0)
"""
FAULTY = {
    "lambdas": ("", "saved_tensors_hooks(lambda t: t, lambda t: t)", "sigmoid", "lambda t: t.detach()"),
    "methods": (COUNTER, "saved_tensors_hooks(counter.pack, counter.unpack)", "tanh", "return tensor.detach()"),
    "one of two": (OTHER, "saved_tensors_hooks(lambda kept: kept, lambda t: t)", "exp", "lambda kept: kept.detach()"),
    "a copy that is none": ("", "saved_tensors_hooks(lambda t: t.cpu(), lambda t: t)", "tanh", ""),
}
HEALTHY = {
    "a backward follows": ("lambda t: t, lambda t: t", "tanh", "score.backward()"),
    "detached": ("lambda t: t.detach(), lambda t: t", "tanh", ""),
    "a copy": ("lambda t: t.clone(), lambda t: t", "tanh", ""),
    "no output is saved": ("lambda t: t, lambda t: t", "square", ""),
}


def leaks(program: str, folder: Path) -> list[dict[str, Any]]:
    found = forked(program, folder)
    assert found is not None
    return [f for f in found if f["severity"] != "info"]


@pytest.mark.parametrize("name", FAULTY)
def test_the_cycle_is_said_once_with_its_cause_and_fixed(name: str, tmp_path: Path) -> None:
    before, hooks, operator, fixed = FAULTY[name]
    program = PROGRAM.format(before=before, hooks=hooks, operator=operator, after="")
    (one,) = leaks(program, tmp_path)
    assert (one["code"], one["severity"], one["holder"]["kind"]) == ("MEM105", "warning", "native")
    assert one["measured"]["bytes_per_step"] == pytest.approx(2 * 32 * 64 * 4, rel=0.1)  # input and output
    assert "hands back the tensor itself" in one["cause"] and ".detach()" in one["remedy"]["summary"]
    line = program.splitlines()[one["location"]["line"] - 1]
    if not fixed:
        assert f".{operator}()" in line  # which call makes the same tensor of it is not known
        return
    assert fixed.replace(".detach()", "") in line
    path = str(tmp_path / "program.py")
    after, _ = apply({path: program}, [msgspec.convert(one, Finding)])
    assert fixed in after[path] and not leaks(after[path], tmp_path)


@pytest.mark.parametrize("name", HEALTHY)
def test_hooks_that_keep_no_output_alive_are_none(name: str, tmp_path: Path) -> None:
    hooks, operator, after = HEALTHY[name]
    hooked = f"saved_tensors_hooks({hooks})"
    assert not leaks(PROGRAM.format(before="", hooks=hooked, operator=operator, after=after), tmp_path)
