"""MEM103 in source: states that a loop which generates carries on with their graph, and the look-alikes."""

from __future__ import annotations

import pytest

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

WRITE = """\
import torch
from other import encode

def write(reader, text, length):
    state = reader.init_hidden(1)
    row = encode(text)
    for _ in range(length):
        scores, state = reader(row, state)
        token = torch.multinomial(scores.data.view(-1).exp(), 1)[0]
        text += chr(token)
        row = encode(text[-1])
    return text
"""

TWO = """\
import torch

class Writer(Base):
    def fit(self):
        self.reader.train()

    def one(self, row, hidden=None):
        scores, hidden = self.reader(row, hidden)
        return scores.argmax(-1), hidden

    def many(self, row, length):
        hidden, rows = self.reader.init_hidden(1), []
        for _ in range(length):
            row, hidden = self.one(row, hidden=hidden)
            rows.append(row)
        return rows
"""


def found(text: str, path: str = "write.py") -> list[Finding]:
    return list(rule("MEM103").in_source(SourceFile(path, text)))


@pytest.mark.parametrize("text, line", [(WRITE, 8), (TWO, 9)], ids=["in the loop", "in a method that the loop calls"])
def test_a_state_whose_graph_gets_longer(text: str, line: int) -> None:
    (one,) = found(text)
    assert one.location is not None and (one.severity, one.location.line) == ("info", line)


def test_the_method_is_beside() -> None:
    assert [(r.role, r.line) for r in found(TWO)[0].related] == [("loop", 14), ("run", 8)]


SILENT = {
    "under no_grad": WRITE.replace("    for _ in", "    torch.set_grad_enabled(False)\n    for _ in"),
    "decorated": WRITE.replace("def write", "@torch.no_grad()\ndef write"),
    "detached": WRITE.replace("        token =", "        state = state.detach()\n        token ="),
    "started afresh": WRITE.replace("        scores,", "        state = reader.init_hidden(1)\n        scores,"),
    "scores that are kept": WRITE.replace("        token =", "        kept.append(scores)\n        token ="),
    "scores that are returned": WRITE.replace("return text", "return text, scores"),
    "scores made of the state, and kept": WRITE.replace(
        "        token =", "        kept.append(linear(state))\n        token ="
    ),
    "no tokens": WRITE.replace("scores.data.view(-1).exp()", "chances"),
    "a loss": WRITE.replace("        token =", "        cross_entropy(scores, row).backward()\n        token ="),
    "log-probabilities that are kept": WRITE.replace(
        "        token =", "        chances = torch.log_softmax(scores, -1)\n        kept[0] = chances\n        token ="
    ),
    "three turns": WRITE.replace("range(length)", "range(3)"),
    "what is no model": WRITE.replace("reader.init_hidden(1)", "None"),
    "a method that detaches": TWO.replace(
        "return scores.argmax(-1), hidden", "return scores.argmax(-1), hidden.detach()"
    ),
    "a method that returns the scores": TWO.replace("scores.argmax(-1), hidden", "scores, hidden"),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_look_alikes(text: str) -> None:
    assert not found(text)


def test_a_test_may_carry_a_state() -> None:
    assert not found(WRITE, "tests/test_write.py")
