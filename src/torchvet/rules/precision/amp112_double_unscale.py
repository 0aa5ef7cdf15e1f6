"""AMP112: gradients are divided by the scale twice, once for a wrapper and once for the optimizer inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.base import Rule
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision._step_mends import one_object

if TYPE_CHECKING:
    from torchvet.finding import Edit, Finding
    from torchvet.recording import Recording
    from torchvet.source.model import SourceFile


class DoubleUnscale(Rule):
    """Gradients are divided by the scale twice, once for a wrapper and once for the optimizer inside."""

    code = "AMP112"
    name = "double-unscale"
    summary = "Gradients are divided by the scale twice, for two objects with the same parameters"
    severity = "error"

    what = (
        "A scaler notes by the optimizer object which gradients it has divided. `scaler.unscale_(wrapper)` and then "
        "`scaler.step(optimizer)` are two objects to it, so that the gradients of the parameters that they share are "
        "divided twice. The same happens where two optimizers are given one parameter."
    )
    why = (
        "The updates are too small by the scale, 65,536 at first: SGD stands still, Adam hides it until eps dominates. "
        "Nothing is raised, since each object was unscaled once."
    )
    when_not = (
        "Handing the same object to `unscale_` and `step`, wrapper or not, is right. Frameworks that take their own "
        "wrappers off first, as Accelerate does, divide once."
    )
    proof = (
        "torch 2.13.0, CPU, `GradScaler('cpu')`, SGD at 0.05: with `unscale_` of the wrapper and `step` of the "
        "optimizer inside the loss stood at 14.2 after 40 steps; with one object for both it fell to 0.12."
    )
    remedy = "Hand the same object to `scaler.unscale_` and to `scaler.step`."

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn


class Limited:
    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    def clip(self, limit):
        nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], limit)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
limited = Limited(optimizer)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(limited)
    limited.clip(5.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn


class Limited:
    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    def clip(self, limit):
        nn.utils.clip_grad_norm_([p for g in self.param_groups for p in g["params"]], limit)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
limited = Limited(optimizer)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    limited.clip(5.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: a scaler that has made some steps."""
        return super().could_be_measured(recording) and runs.looked_at(recording)

    def mends(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """`unscale_` of what is stepped."""
        return one_object(file, finding)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Gradients that were divided for two objects since the last update, and then stepped on."""
        for rank in recording.ranks:
            for fault in runs.faults(rank, "divided-twice"):
                yield runs.seen(
                    self, rank, fault, "the gradients are divided here and again for another object with the same "
                    f"parameters: in {runs.of(fault.applied, fault.steps)} they were {runs.smaller(fault.factor)}",
                    severity=runs.grade(fault), role="divided",
                    cause="the scaler knows by the optimizer object what it has divided, not by the parameters",
                    advice="hand the same object to `scaler.unscale_` and to `scaler.step`",
                )  # fmt: skip
