"""Losses that are given probabilities, in the shapes that programs have; and what only resembles them."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """import torch
import torch.nn.functional as F
from collections import OrderedDict
from torch import nn
from torch.utils.checkpoint import checkpoint
from elsewhere import Noisy, smoothed

class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.kind = n
        self.fc = nn.Linear(4, n)
        self.act = nn.Softmax(dim=1)
        {made}

    def forward(self, x):
        x = F.relu(self.fc(x))
        {result}
"""
TRAIN = """
def train(model, batches, criterion, optimizer):
    for x, y in batches:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()

def main(batches):
    model = Net(3)
    train(model, batches, {criterion}, torch.optim.SGD(model.parameters(), 0.1))
"""
SELF = """
class Run:
    def __init__(self, criterion):
        self.net, self.criterion = Net(3).cuda(), criterion

    def go(self, x, y):
        return self.criterion(self.net(x), y)

Run(nn.CrossEntropyLoss().cuda()).go(a, b)
"""
STEP = """
    def training_step(self, batch, number):
        x, y = batch
        scores = self(x)
        return self.score(scores, y)
"""
INNER = "self.head = nn.Sequential(self.fc, self.act)"
TWO = "self.measure = nn.CrossEntropyLoss() if n > 1 else nn.MSELoss()"
ARMS = """if n > 1:
            self.measure = nn.CrossEntropyLoss()
        else:
            self.measure = nn.MSELoss()"""
CALLED = """if n > 1:
            return self.measure(F.softmax(x, 1), n)
        else:
            return self.measure(x, n)"""
CE = TRAIN.replace("{criterion}", "nn.CrossEntropyLoss()")
NAMED = TRAIN.replace("{criterion}", "ce") + "\nce = nn.CrossEntropyLoss()\n"
SMOOTHED = TRAIN.replace("{criterion}", "smoothed.CrossEntropyLoss()")
FAULTY = {
    "the criterion is an argument": ("", "return self.act(x)", CE),
    "it has another name elsewhere": ("", "return self.act(x)", NAMED),
    "two objects": ("", "return self.act(x)", SELF),
    "a module calls itself": ("self.score = nn.CrossEntropyLoss()", "return self.act(x)", STEP),
    "the last of a Sequential is an attribute": (INNER, "return self.head(x)", CE),
    "a Sequential in the forward": ("", "return nn.Sequential(self.fc, self.act)(x)", CE),
    "a dict of layers": (
        "self.head = nn.Sequential(OrderedDict([('a', self.fc), ('b', nn.Softmax(1))]))", "return self.head(x)", CE),
    "a list of layers": (
        "layers = [self.fc]; layers.append(nn.Softmax(1)); self.head = nn.Sequential(*layers)",
        "return self.head(x)", CE),
    "behind a checkpoint": (INNER, "return checkpoint(self.head, x, use_reentrant=False)", CE),
    "a kept function": ("self.norm = torch.softmax", "return self.norm(x, 1)", CE),
    "in another shape": ("", "return torch.squeeze(x.softmax(1))", CE),
    "rows alone": ("", "return x.softmax(1)", CE.replace("(out, y)", "(out[mask], y)")),
    "the same question": (ARMS, CALLED, ""),
    "by default": (
        "", "return self.act(x)", CE.replace("criterion, optimizer", "optimizer, criterion=nn.CrossEntropyLoss()")
        .replace("nn.CrossEntropyLoss(), torch", "torch")),
    "a function builds it": (
        "", "return x", "\ndef build(): return nn.Sequential(nn.Linear(3, 4), nn.Softmax(1))\nnet = build()\n"
        "loss = F.cross_entropy(net(a), b)\n"),
}  # fmt: skip
HEALTHY = {
    "probabilities where they are asked for": ("", "if self.kind: x = self.act(x)\n        return x", CE),
    "scores in training": ("", "if self.training: return x\n        return self.act(x)", CE),
    "another loss of this name": ("", "return self.act(x)", SMOOTHED),
    "a loss that wants them": ("", "return x.log_softmax(1)", TRAIN.replace("{criterion}", "nn.NLLLoss()")),
    "one of two losses": (TWO, "return self.measure(x.softmax(1), n)", ""),
    "the other loss": (ARMS, CALLED.replace("F.softmax(x, 1)", "x").replace("(x, n)", "(F.softmax(x, 1), n)", 2)
                       .replace("F.softmax(x, 1)", "x", 1), ""),
    "in the middle": ("self.head = nn.Sequential(self.act, self.fc)", "return self.head(x)", CE),
    "appended in a branch": (
        "layers = [self.fc]\n        if n: layers.append(self.act)\n        self.head = nn.Sequential(*layers)",
        "return self.head(x)", CE),
    "one layer more": (
        "layers = [self.fc, self.act]; layers.append(nn.Linear(n, n)); self.head = nn.Sequential(*layers)",
        "return self.head(x)", CE),
    "an attention is given a softmax": ("self.mix = Noisy()", "return self.mix(x, self.act)", CE),
    "for the accuracy": ("", "return x", CE.replace("loss = ", "hits = out.softmax(1).argmax(1); loss = ")),
    "sharpened in place": ("", "q = x.softmax(1)\n        q *= 10.0\n        return q", CE),
    "its logarithm, in place": ("", "q = x.softmax(1)\n        q.log_()\n        return q", CE),
    "its logarithm, into itself": ("", "q = x.softmax(1)\n        torch.log(q, out=q)\n        return q", CE),
    "as the target": ("", "return x", CE.replace("(out, y)", "(out, y.softmax(1))")),
    "one element": ("", "return x.softmax(1)", CE.replace("(out, y)", "(out[:, 0], y)")),
    "a builder that is asked": (
        "", "return x", "\ndef build(p):\n    if p: return nn.Softmax(1)\n    return nn.Identity()\nnet = build(p)\n"
        "loss = F.cross_entropy(net(a), b)\n"),
}  # fmt: skip


def found(made: str, result: str, rest: str) -> list[str]:
    text = HEAD.replace("{made}", made or "pass").replace("{result}", result) + rest
    compile(text, "t.py", "exec")
    return [f"{f.severity}: {f.message}" for f in rule("TRN108").in_source(SourceFile("t.py", text))]


@pytest.mark.parametrize("name", FAULTY)
def test_probabilities_are_found(name: str) -> None:
    (one,) = found(*FAULTY[name])
    assert one.startswith("warning") and "the result of softmax" in one


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name: str) -> None:
    assert found(*HEALTHY[name]) == []


def test_what_a_module_from_elsewhere_makes_of_a_head_is_not_sure() -> None:
    (one,) = found("self.wrap = Noisy()", "return self.wrap(x, nn.Sequential(self.fc, self.act))", CE)
    assert one.startswith("info") and "if self.wrap gives their result as it is" in one


def test_twice_the_logarithm_changes_nothing() -> None:
    (one,) = found("", "return F.log_softmax(x, dim=-1)", CE)
    assert one.startswith("info") and one.endswith("it changes nothing")


def test_the_layer_and_the_call_that_runs_it_are_named() -> None:
    text = HEAD.replace("{made}", "pass").replace("{result}", "return self.act(x)") + CE
    (one,) = rule("TRN108").in_source(SourceFile("t.py", text))
    places = [(r.role, text.splitlines()[(r.line or 0) - 1].strip()) for r in one.related]
    assert places == [("normalised", "self.act = nn.Softmax(dim=1)"), ("applied", "return self.act(x)")]


def test_a_softmax_in_a_file_with_a_method_of_this_name_is_judged() -> None:
    text = (
        "import torch\nfrom torch.nn import functional as F\n\nclass Scores:\n    def softmax(self, d):\n"
        "        return self\n\ndef train(x, y):\n    p = x.softmax(-1)\n    return F.cross_entropy(p, y)\n"
    )
    assert len(list(rule("TRN108").in_source(SourceFile("t.py", text)))) <= 1
