"""TRN104: an optimizer steps although its parameters never get a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Measured
from torchvet.recording.training_records import OptimizerUse
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class StepWithoutBackward(Rule):
    """An optimizer steps although its parameters never get a gradient."""

    code = "TRN104"
    name = "step-without-backward"
    summary = "An optimizer steps although its parameters never get a gradient"
    severity = "error"

    what = (
        "`optimizer.step()` skips every parameter whose `.grad` is None, silently. When the backward call is "
        "missing, or the forward pass that leads to the parameters ran under `no_grad`, on a detached tensor or "
        "not at all, the step does nothing."
    )
    why = (
        "The parameters keep their initial values while the rest trains around them. The loss may fall all the "
        "same, so that only a worse result gives it away."
    )
    when_not = (
        "Frozen layers (`requires_grad=False`) that are handed to the optimizer for simplicity are harmless. A "
        "branch that only some batches use (a mixture of experts, a head per task) gets its gradients when it is "
        "used. A skipped step under a gradient scaler is no fault."
    )
    proof = (
        "torch 2.13.0, CPU. In the example the encoder's weights are bitwise unchanged after 40 steps and their "
        "`.grad` is None; the loss after 40 steps is 7.02, with the encoder's gradients on 0.94. Ten steps of SGD "
        "(momentum, weight decay) and of AdamW with `.grad` None leave the weights bitwise unchanged; a step with "
        "gradients of zero changes them in both."
    )
    remedy = (
        "Find where the path from the parameters to the loss is cut: a `no_grad` block, `.detach()`, `.item()`, "
        "numpy, or a module that `forward` does not call. If the parameters are meant to be frozen, say so with "
        "`requires_grad_(False)` and leave them out of the optimizer."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
head = nn.Linear(64, 1)
encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
head_optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
truth = torch.randn(32, 1)
for step in range(40):
    inputs = torch.randn(128, 32)
    with torch.no_grad():
        features = encoder(inputs)
    loss = nn.functional.mse_loss(head(features), (inputs @ truth).abs())
    encoder_optimizer.zero_grad()
    head_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    head_optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
head = nn.Linear(64, 1)
encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
head_optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
truth = torch.randn(32, 1)
for step in range(40):
    inputs = torch.randn(128, 32)
    features = encoder(inputs)
    loss = nn.functional.mse_loss(head(features), (inputs @ truth).abs())
    encoder_optimizer.zero_grad()
    head_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    head_optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Optimizers that step without any gradient, and parameters that never have one."""
        for rank in recording.ranks:
            for use in {u.id: u for u in rank.all(OptimizerUse)}.values():
                seen = use.checked + use.starved
                if use.starved >= 3 and use.starved >= 0.9 * seen:
                    yield self._starved(rank, use)
                elif use.without_gradient_count and seen >= 4:
                    yield self._partly(rank, use)

    def _starved(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        return observed(
            self, rank, severity="error", place=use.step_place,
            message=f"{use.name}.step() changes nothing: in {use.starved} checked steps no parameter "
            "had a new gradient",
            cause="no backward pass reaches this optimizer's parameters between its steps",
            advice="call `loss.backward()` before `step()`, on a loss that depends on these parameters (not detached)",
            measured=Measured(steps=use.starved),
        )  # fmt: skip

    def _partly(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        names = ", ".join(use.without_gradient[:4])
        more = use.without_gradient_count - min(4, len(use.without_gradient))
        rest = f" and {more} more" if more > 0 else ""
        return observed(
            self, rank, severity="info", place=use.place or use.step_place,
            message=f"{use.without_gradient_count} of {use.parameters} parameters of {use.name} never "
            "had a gradient in the "
            f"checked steps: {names}{rest}",
            cause="the loss does not depend on them in these steps",
            advice="leave them out of the optimizer, or check that the loss reaches them",
            measured=Measured(steps=use.steps),
        )  # fmt: skip
