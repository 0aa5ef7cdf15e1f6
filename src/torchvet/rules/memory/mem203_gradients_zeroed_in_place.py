"""MEM203: gradients are zeroed in place and stay allocated through the forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Measured
from torchvet.recording.training_records import ZeroedInPlace
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class GradientsZeroedInPlace(Rule):
    """Gradients are zeroed in place and stay allocated through the forward pass."""

    code = "MEM203"
    name = "gradients-zeroed-in-place"
    summary = "Gradients are zeroed in place and stay allocated through the forward pass"
    severity = "warning"

    what = (
        "`zero_grad(set_to_none=False)`, or a hand-written `p.grad.zero_()`, fills the gradients with zeros and "
        "keeps their memory. Set to None, the default since torch 2.0, they are freed and allocated again one by "
        "one during the backward pass, while activations are being freed."
    )
    why = (
        "The gradients, as large as the parameters, are alive at the end of the forward pass, when activations "
        "are at their highest. It also costs a pass to write the zeros and one to add to them."
    )
    when_not = (
        "Where activations are small beside the parameters the peak lies elsewhere and hardly changes. Code that "
        "holds on to the gradient tensors themselves (a flat buffer of gradients, for instance) needs them to "
        "stay in place. Some optimizers act on a zero gradient (momentum, weight decay) and skip a missing one."
    )
    proof = (
        "torch 2.13.0, CPU. Peak of the example: 3,073,152 bytes with `set_to_none=False`, 2,267,224 with the "
        "default, same losses; the difference is the size of the gradients, 805,928 bytes. `zero_grad()` right "
        "after `step()` gives 2,267,224 as well, but between the forward pass and `backward()` it comes too late: "
        "2,936,924."
    )
    remedy = (
        "Call `optimizer.zero_grad()` without the argument, before the forward pass or right after `step()`. In "
        "hand-written loops set `p.grad = None`. Code that reads `.grad` afterwards has to allow for None."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
blocks = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
model = nn.Sequential(*blocks, nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(128, 256), torch.randint(0, 10, (128,))
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(features), target)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
blocks = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
model = nn.Sequential(*blocks, nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(128, 256), torch.randint(0, 10, (128,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(features), target)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Gradients that were set to zero and kept, graded by what dropping them would have taken off the peak."""
        for rank in recording.ranks:
            latest = {record.place: record for record in rank.all(ZeroedInPlace)}
            for record in latest.values():
                yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: ZeroedInPlace) -> Finding:
        share = record.saving / record.peak if record.peak else 0.0
        effect = f"would lower the peak by {words.size(record.saving)} ({share:.0%})" if record.saving else "is simpler"
        return observed(
            self, rank, severity=grading.of_share(share), place=record.place,
            message=f"{words.size(record.bytes)} of gradients are zeroed in place and stay allocated "
            "through the forward "
            f"pass; dropping them {effect}",
            cause="gradients set to zero keep their storages while the forward pass fills memory with activations",
            advice="`zero_grad()` (its default, `set_to_none=True`, drops them), before the forward pass",
            measured=Measured(bytes=record.bytes, peak_bytes=record.peak, share=share),
        )  # fmt: skip
