"""TRN101: the optimizer steps on gradients that were never cleared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Measured
from torchvet.recording.training_records import OptimizerUse
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.recording import Recording


class GradientsNotCleared(Rule):
    """The optimizer steps on gradients that were never cleared."""

    code = "TRN101"
    name = "gradients-not-cleared"
    summary = "The optimizer steps on gradients that were never cleared"
    severity = "error"

    what = (
        "`backward()` adds to `.grad`. Without `zero_grad()` between the steps the optimizer applies the sum of "
        "all gradients since the start, the stale ones included."
    )
    why = (
        "The direction is dominated by old gradients and the effective step size grows: training oscillates, "
        "diverges or settles somewhere worse. Nothing raises and the loss may even fall at first. It is wrong "
        "mathematics, not a leak: dense gradients accumulate in place."
    )
    when_not = (
        "Gradient accumulation over a fixed number of backward passes, with a clear after each optimizer step, is "
        "meant. Clearing may be done elsewhere: `model.zero_grad()`, `p.grad = None`, a framework's trainer. A "
        "loop without an optimizer step may sum gradients on purpose."
    )
    proof = (
        "torch 2.13.0, CPU. Loss of the example after 10, 20, 30 and 40 steps: 8.42, 9.19, 9.75, 25.87; with "
        "`optimizer.zero_grad()`: 0.12, 0.12, 0.07, 0.18. Memory does not grow: 200 further backward passes of an "
        "MLP without clearing allocated 0 bytes net and left every `.grad` at the same address, while the norm of "
        "one went from 0.16 to 32.1."
    )
    remedy = (
        "Call `optimizer.zero_grad()` once per optimizer step, before `backward()`. With several optimizers clear "
        "each one's parameters, also those that get gradients from a loss that is not theirs."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Optimizers none of whose checked steps started from cleared gradients."""
        for rank in recording.ranks:
            for use in {u.id: u for u in rank.all(OptimizerUse)}.values():
                if use.checked >= 3 and use.uncleared == use.checked:
                    yield observed(
                        self, rank, severity="error", place=use.step_place,
                        message=f"{use.name} steps on the sum of all gradients so far: none of "
                        f"{use.checked} checked steps "
                        "began with cleared gradients",
                        cause="backward adds to `.grad`, and nothing sets it to zero or None between the steps",
                        advice="call `optimizer.zero_grad()` once per step, before backward or after `step()`",
                        measured=Measured(steps=use.checked),
                    )  # fmt: skip
