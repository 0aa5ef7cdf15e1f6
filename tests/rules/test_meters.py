"""MEM101 and MEM112 in source: a meter of another file that is given a tensor with its graph."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

TEXT = """\
import torch
from torch import nn
import torch.nn.functional as F
from other import Meter, spread
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(batches):
    meter, times = Meter(), Meter()
    for x, y in batches:
        optimizer.zero_grad()
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        width = spread(output)
        meter.update(VALUE, len(x))
        times.update(loss.item(), 1)
        print(width.item())
"""


def found(code: str, value: str, text: str = TEXT) -> list[Finding]:
    return list(rule(code).in_source(SourceFile("train.py", text.replace("VALUE", value))))


@pytest.mark.parametrize("value", ["width", "(output - y).abs().mean()", "output.norm()"])
def test_a_tensor_beside_numbers(value: str) -> None:
    (one,) = found("MEM101", value)
    assert one.severity == "info" and one.remedy.edits[0].text.endswith(".detach()")
    assert not found("MEM112", value)


def test_a_loss_after_its_backward_leaves_its_nodes() -> None:
    assert not found("MEM101", "loss")
    (one,) = found("MEM112", "loss")
    assert one.severity == "info" and one.remedy.edits[0].text == "loss.detach()"


NUMBERS = "        times.update(loss.item(), 1)\n"
SILENT = {
    "a number": ("width.item()", TEXT),
    "detached": ("output.detach().mean()", TEXT),
    "nothing else is a number": ("width", TEXT.replace(NUMBERS, "")),
    "what may be a number": ("width", TEXT.replace("print(width.item())", "print(width)")),
    "a class of this file": (
        "width",
        TEXT.replace("from other import Meter, ", "class Meter: ...\nfrom other import "),
    ),
    "a counter": (
        "width",
        TEXT.replace("other import Meter", "collections import Counter as Meter\nfrom other import a"),
    ),
    "under no_grad": ("width", TEXT.replace("width = spread(output)", "with torch.no_grad(): width = spread(output)")),
    "given a new one in each call": ("width", TEXT.replace("meter.update(", "Meter().update(")),
    "a dict": ("width", TEXT.replace("meter, times = Meter(), Meter()", "meter, times = {}, {}")),
}


@pytest.mark.parametrize(("value", "text"), SILENT.values(), ids=SILENT)
def test_look_alikes(value: str, text: str) -> None:
    assert not [f for code in ("MEM101", "MEM112") for f in found(code, value, text)]


def test_a_dict_of_numbers_says_the_same() -> None:
    text = TEXT.replace(NUMBERS, "        rows = {'loss': float(loss.item())}\n        times.update_all(rows)\n")
    assert len(found("MEM101", "width", text)) == 1
