"""MEM109 in source: a backward for each piece of a batch, whose graph no later turn shares."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

PIECES = """\
import torch
import torch.nn.functional as F

def pieces(output, target, size):
    parts = []
    for part in output.split(size):
        part = part.detach()
        part.requires_grad_()
        parts.append(part)
    yield from_of(parts, target)
    torch.autograd.backward(output.split(size), [p.grad for p in parts])

def losses(head, output, target, size, total):
    for part, y in pieces(output, target, size):
        loss = F.cross_entropy(head(part), y)
        loss.div(total).backward(retain_graph=True)
"""


def found(text: str) -> list[Finding]:
    return list(rule("MEM109").in_source(SourceFile("train.py", text)))


def test_each_piece_has_a_graph_of_its_own() -> None:
    (one,) = found(PIECES)
    assert one.severity == "info" and one.location is not None
    assert "retain_graph=True" in PIECES.splitlines()[one.location.line - 1]


SILENT = {
    "pieces that share the graph": PIECES.replace("        part = part.detach()\n", ""),
    "no generator": PIECES.replace("in pieces(output, target, size)", "in zip(output.split(size), target)"),
    "gone through twice in a turn": PIECES + "        loss.backward()\n",
    "one more backward elsewhere": PIECES + "def last(loss):\n    loss.backward()\n",
    "not retained": PIECES.replace("retain_graph=True", ""),
    "a second derivative": PIECES.replace("retain_graph=True", "retain_graph=True, create_graph=True"),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_look_alikes(text: str) -> None:
    assert not found(text)
