"""MEM112 in source: losses that are kept in a product, or that a function returns after their backward."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

LOOP = """\
total = 0
for x, y in batches:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss
"""

STEP = """\
def step(x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss, len(x)

def train(batches):
    total, seen = 0, 0
    for x, y in batches:
        loss, number = step(x, y)
        total += loss * number
        seen += number
    print(total / seen)
"""


def found(text: str) -> list[Finding]:
    return list(rule("MEM112").in_source(SourceFile("train.py", HEAD + text)))


FOUND = {
    "as it is": (LOOP, "loss.detach()"),
    "weighted by the batch": (LOOP.replace("+= loss", "+= loss * x.size(0)"), "loss.detach()"),
    "a mean": (LOOP.replace("+= loss", "+= loss / len(batches)"), "loss.detach()"),
    "on the host": (LOOP.replace("+= loss", "+= loss.cpu()"), "loss.detach()"),
    "returned by the function that sent it backward": (STEP, "loss.detach()"),
    "returned, and kept at once": (
        STEP.replace("return loss, len(x)", "return loss")
        .replace("loss, number = step(x, y)", "number = 1")
        .replace("+= loss * number", "+= step(x, y)"),
        "step(x, y).detach()",
    ),
}


@pytest.mark.parametrize("text, edit", FOUND.values(), ids=FOUND)
def test_a_loss_that_keeps_its_nodes(text: str, edit: str) -> None:
    (one,) = found(text)
    assert one.severity == "info" and [e.text for e in one.remedy.edits] == [edit]


SILENT = {
    "a number": LOOP.replace("+= loss", "+= loss.item() * x.size(0)"),
    "detached": LOOP.replace("+= loss", "+= loss.detach() * x.size(0)"),
    "added under no_grad": LOOP.replace("    total += loss", "    with torch.no_grad():\n        total += loss * 2"),
    "the function returns a number": STEP.replace("return loss,", "return loss.item(),"),
    "the function's other result": STEP.replace("+= loss * number", "+= number"),
    "returned before any backward": STEP.replace("    loss.backward()\n", "").replace(
        "        total +=", "        loss.backward()\n        total = loss *"
    ).replace("total = loss * loss * number", "print(number)"),
    "one way returns another loss": STEP.replace(
        "    return loss", "    if y is None:\n        return model(x), 1\n    return loss"
    ),
    "a quotient of counts": LOOP.replace("+= loss", "+= len(x) / len(batches)"),
}  # fmt: skip


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_look_alikes(text: str) -> None:
    assert not found(text)
