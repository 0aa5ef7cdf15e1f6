"""MEM110: backward(create_graph=True) ties a tensor and its gradient into a cycle that no collector sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from torchvet.finding import Finding, Holder, Location
from torchvet.recording.training_records import BackwardUse
from torchvet.rules.growth_rule import GrowthRule, location_of
from torchvet.rules.strangers import stranger_findings

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class CreateGraphCycle(GrowthRule):
    """backward(create_graph=True) ties a tensor and its gradient into a cycle that no collector sees."""

    code = "MEM110"
    name = "create-graph-cycle"
    summary = "backward(create_graph=True) ties a tensor and its gradient into a cycle that no collector sees"
    severity = "error"

    what = (
        "With `create_graph=True` the gradient that `backward()` stores in `x.grad` has a graph of its own, and "
        "that graph leads back to `x`. The ring runs through C++ objects, where Python's cyclic collector cannot "
        "look. PyTorch warns of it once per process."
    )
    why = (
        "Every tensor or model copy that gets such a gradient and is then dropped stays for ever: the input of a "
        "gradient penalty, the task copies of meta-learning. Gradients of parameters that are never cleared grow "
        "as well, because each backward adds a graph to the last."
    )
    when_not = (
        "`torch.autograd.grad(..., create_graph=True)` returns the gradients and stores nothing, so that there is "
        "no ring. Parameters whose `.grad` is set to None in every step, as `optimizer.zero_grad()` does, are "
        "released."
    )
    proof = (
        "torch 2.13.0, CPU. The example grows by 262,144 bytes per step (its 256 × 128 input and the input's "
        "gradient), with `torch.autograd.grad` by 0, same losses. All figures here are after `gc.collect()`: a "
        "three-layer MLP whose gradients are never cleared grows by 0.84 MB per backward (mean of 20), by 0 if "
        "`.grad` is set to None; a copy of it (536,616 bytes of parameters), dropped after "
        "`backward(create_graph=True)`, leaves 1,890,388 bytes behind; with `torch.autograd.grad` 0."
    )
    remedy = (
        "Ask for the gradients instead of having them stored: `grads = torch.autograd.grad(loss, inputs, "
        "create_graph=True)`. If `backward` has to be used, set every `.grad` that it filled to None once it has "
        "been used, those of inputs included."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
for step in range(40):
    real, fake = torch.randn(256, 128) + 1, torch.randn(256, 128)
    mixed = torch.lerp(real, fake, torch.rand(256, 1)).requires_grad_()
    critic(mixed).sum().backward(create_graph=True)
    slope = mixed.grad
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
for step in range(40):
    real, fake = torch.randn(256, 128) + 1, torch.randn(256, 128)
    mixed = torch.lerp(real, fake, torch.rand(256, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    specificity = 5

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """The growing graph hangs on a `.grad`."""
        uses = [u for r in recording.ranks for u in r.all(BackwardUse) if u.flag == "create_graph"]
        return bool(uses) and ("grad" in growth.holding.via or growth.holding.name.endswith(".grad"))

    def cause(self, growth: Growth, store: Store | None) -> str:
        """parameter → grad → graph → parameter."""
        return (
            f"`.backward(create_graph=True)` gives {growth.holding.name} a graph that leads back to "
            "the parameter: a cycle "
            "through C++ that Python's collector cannot see"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """autograd.grad."""
        return _ADVICE

    def location(self, growth: Growth, store: Store | None, recording: Recording) -> Location | None:
        """The backward call."""
        return _call(recording) or super().location(growth, store, recording)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Growing `.grad`s, and graphs that nothing names where somebody called backward so."""
        yield from super().in_recording(recording)
        if _call(recording) is None:
            return
        where = _call(recording)
        for finding in stranger_findings(
            self, recording, "native", location=where, advice=_ADVICE,
            cause="`.backward(create_graph=True)` left gradients whose graph leads back to their own leaf: a cycle "
            "through C++ that no name leads to and that Python's collector cannot see",
        ):  # fmt: skip
            leaf = _leaf(recording, where)
            yield finding if leaf is None or finding.holder is None else _named(finding, finding.holder, leaf)


_ADVICE = (
    "use `torch.autograd.grad(loss, parameters, create_graph=True)`, which leaves `.grad` alone; or "
    "set the gradients to "
    "None as soon as the second derivative is taken (`zero_grad(set_to_none=True)`)"
)


def _leaf(recording: Recording, where: Location | None) -> str | None:
    """What a backward that says its `inputs` makes gradients of: the first of them, as it is written there."""
    text = recording.sources.get(where.path) if where is not None else None
    if where is None or text is None:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= where.line <= (node.end_lineno or node.lineno):
            given = next((k.value for k in node.keywords if k.arg == "inputs"), None)
            first = given.elts[0] if isinstance(given, (ast.List, ast.Tuple)) and given.elts else given
            if isinstance(first, (ast.Name, ast.Attribute)):
                return ast.unparse(first)
    return None


def _named(finding: Finding, holder: Holder, leaf: str) -> Finding:
    """The finding with the leaf's gradient as its holder: the variable itself is gone, its tensor is not."""
    name = f"{leaf}.grad"
    return msgspec.structs.replace(
        finding,
        message=finding.message.replace(holder.name, f"{name} of every step", 1),
        holder=Holder(name=name, kind=holder.kind, path=[leaf, ".grad"]),
    )


def _call(recording: Recording) -> Location | None:
    """The line that called backward with `create_graph=True`."""
    uses = [u for r in recording.ranks for u in r.all(BackwardUse) if u.flag == "create_graph"]
    return location_of(uses[-1].place) if uses else None
