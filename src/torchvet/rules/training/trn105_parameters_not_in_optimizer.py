"""TRN105: parameters of the trained model get gradients that no optimizer applies."""

from __future__ import annotations

from torchvet.rules.base import Rule


class ParametersNotInOptimizer(Rule):
    """Parameters of the trained model get gradients that no optimizer applies."""

    code = "TRN105"
    name = "parameters-not-in-optimizer"
    summary = "Parameters of the trained model get gradients that no optimizer applies"
    severity = "error"

    what = (
        "An optimizer knows the parameter objects that it was given when it was made. A layer replaced or added "
        "afterwards, or a submodule left out of the parameter list, gets gradients in every backward and is never "
        "updated; the optimizer meanwhile may hold parameters that the model no longer has."
    )
    why = (
        "That part of the model stays at its random initial values: a classifier behind a trained body that never "
        "learns. No error is raised and the loss still falls somewhat, because the rest adapts. "
        "`optimizer.zero_grad()` does not clear these gradients either."
    )
    when_not = (
        "Parameters that are frozen get no gradient and are not meant. Some are updated by hand or by another "
        "optimizer, or by a moving average (a target network); alternating training, as in a GAN, lets gradients "
        "reach the other player's parameters, which have an optimizer of their own."
    )
    proof = (
        "torch 2.13.0, CPU. In the example the head that replaced the first one is bitwise unchanged after 40 "
        "steps, while the body changed; the loss after 40 steps is 1.30, with the optimizer made after the "
        "replacement 1.08 (1.39 is guessing among four classes)."
    )
    remedy = (
        "Make the optimizer after the model is complete (layers replaced, model moved, heads added), from "
        '`model.parameters()`. For a layer that is added later call `optimizer.add_param_group({"params": '
        'layer.parameters()})`. Compare with `{id(p) for g in optimizer.param_groups for p in g["params"]}` when '
        "in doubt."
    )

    BAD = """\
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, features):
        return self.head(self.body(features))


torch.manual_seed(0)
model = Classifier(classes=1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(64, 4)
for step in range(40):
    features = torch.randn(128, 32)
    loss = nn.functional.cross_entropy(model(features), features[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, features):
        return self.head(self.body(features))


torch.manual_seed(0)
model = Classifier(classes=1000)
model.head = nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 32)
    loss = nn.functional.cross_entropy(model(features), features[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""
