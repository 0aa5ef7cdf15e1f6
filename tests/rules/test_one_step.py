"""TRN101 in functions that are one step, and in updates by hand; and what only resembles them."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nfrom torch import nn\nfrom elsewhere import Base, helper\n"
METHOD = """
class Learner(Base):
    def __init__(self, net, rate):
        self.net, self.rate = net, rate
        self.optimizer = torch.optim.SGD(net.parameters(), lr=rate)

    def learn(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        {update}
        return loss.item()
"""
BY_HAND = "for p in self.net.parameters(): p.data.add_(-self.rate, p.grad.data)"
LOOP = """
def fit(net, batches, rate):
    for x, y in batches:
        {first}
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                {change}
"""
FUNCTION = """
def step(net, optimizer, x, y):
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""
TRIALS = """
class Trials:
    model = None

    def build(self):
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, batches):
        for x, y in batches:
            {first}
            loss = (self.model(x) - y).pow(2).mean()
            loss.backward()
            {update}
"""
MODEL_BY_HAND = "for p in self.model.parameters(): p.data -= 0.1 * p.grad"
WITH_OPTIMIZER = """
def adapt(net, batches):
    model = None
    for x, y in batches:
        {first}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
"""
FAULTY = {
    "an optimizer in a method": (METHOD.replace("{update}", "self.optimizer.step()"), "info"),
    "by hand in a method": (METHOD.replace("{update}", BY_HAND), "info"),
    "a function": (FUNCTION, "info"),
    "by hand in a loop": (LOOP.replace("{first}", "pass").replace("{change}", "p -= rate * p.grad"), "error"),
    "by `data`": (LOOP.replace("{first}", "pass").replace("{change}", "p.data.sub_(rate * p.grad)"), "error"),
    "named": (
        LOOP.replace("{first}", "pass").replace("p in net.parameters", "n, p in net.named_parameters")
        .replace("{change}", "p.data.sub_(rate * p.grad)"), "error"),
    "built once": (
        TRIALS.replace("{first}", "if self.model is None: self.build()").replace("{update}", "self.optimizer.step()"),
        "error"),
    "only moved": (WITH_OPTIMIZER.replace("{first}", "model = (model or net).to('cpu')"), "error"),
}  # fmt: skip
HAND = METHOD.replace("{update}", BY_HAND)
HEALTHY = {
    "cleared in another method": HAND + "\n    def begin(self): self.net.zero_grad()\n",
    "cleared by hand": HAND.replace("loss.back", "[p.grad.zero_() for p in self.net.parameters()]; loss.back"),
    "set to None": LOOP.replace("{first}", "for p in net.parameters(): p.grad = None").replace(
        "{change}", "p -= rate * p.grad"),
    "the model of this turn": LOOP.replace("{first}", "net = helper(net)").replace("{change}", "p -= rate * p.grad"),
    "no backward": HAND.replace("loss.backward()", "pass"),
    "a loss from elsewhere": FUNCTION.replace("x, y):", "loss):").replace("loss = ", "print(loss); #"),
    "an optimizer of this call": METHOD.replace(
        "{update}", "rule = torch.optim.SGD(self.net.parameters(), 0.1); rule.step()"),
    "the base class does more": METHOD.replace("{update}", "self.optimizer.step(); self.after_update()"),
    "what super does": METHOD.replace("{update}", "self.optimizer.step(); super().learn_step(x)"),
    "a closure": METHOD.replace("{update}", "self.optimizer.step(lambda: loss)"),
    "a helper is given the optimizer": FUNCTION.replace("    return", "    helper(optimizer)\n    return"),
    "gradients are averaged": LOOP.replace("{first}", "pass").replace("{change}", "total.add_(p.grad)"),
    "another's parameters": LOOP.replace("{first}", "pass").replace("{change}", "p.data.add_(q.grad)"),
    "a script of one pass": "net = nn.Linear(2, 2)\nloss = net(x).sum()\nloss.backward()\n"
    "for p in net.parameters(): p.data -= p.grad\n",
    "an attribute of this turn": TRIALS.replace("{first}", "self.model = helper()").replace("{update}", MODEL_BY_HAND),
    "built in another method": TRIALS.replace("{first}", "self.build()").replace("{update}", MODEL_BY_HAND),
    "built with its optimizer": TRIALS.replace("{first}", "self.build()").replace("{update}", "self.optimizer.step()"),
    "a copy of this turn": WITH_OPTIMIZER.replace("{first}", "model = copy.deepcopy(net)"),
    "engines step and clear": FUNCTION.replace("optimizer.step()", "net.step()").replace("loss.back", "net.back"),
}  # fmt: skip


def found(text: str, path: str = "t.py") -> list[str]:
    compile(HEAD + text, path, "exec")
    return [f.severity for f in rule("TRN101").in_source(SourceFile(path, HEAD + text))]


@pytest.mark.parametrize("name", FAULTY)
def test_a_step_without_a_clear_is_found(name: str) -> None:
    text, severity = FAULTY[name]
    assert found(text) == [severity]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name: str) -> None:
    assert found(HEALTHY[name]) == []


def test_a_test_takes_one_step() -> None:
    assert found(FUNCTION, "tests/test_step.py") == []
