"""MEM209: the graphs of several micro-batches are alive at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured
from torchvet.recording.training_records import SummedLosses
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed, peak_of

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import RankRecording, Recording

_MANY = 3
"""Losses from which on they are micro-batches: two are often a pair that belongs together, as of a discriminator."""
_SURE = 4
"""Losses below which it is a note: they may be views of one batch that one loss compares."""
_WORTH_A_LINE = 0.01
"""Share of the peak below which nothing is said."""
_WORTH_A_WARNING = 512 * 1024
"""Bytes below which it is a note, as for other tensors that make a peak higher (MEM202)."""


class MicroBatchesPileUp(Rule):
    """The graphs of several micro-batches are alive at once."""

    code = "MEM209"
    name = "micro-batches-pile-up"
    summary = "The graphs of several micro-batches are alive at once"
    severity = "warning"

    what = (
        "A step computes the losses of several micro-batches, adds them up, and calls `backward()` on the sum. Until "
        "then every micro-batch keeps its autograd graph with all saved activations."
    )
    why = (
        "Micro-batches are there to save memory. Summed up first, they take as much as one large batch. Gradients "
        "accumulate: `backward()` on each loss as soon as it is computed adds up to the same gradients, and each graph "
        "is freed before the next is built."
    )
    when_not = (
        "Losses whose graphs share a part (several heads of one network) need one backward pass, or the shared part "
        "would be computed twice. The terms of a rollout are complete only at its end. Two losses, as a "
        "discriminator's for real and generated samples, are left alone. A small share of the peak is `info`."
    )
    proof = (
        "torch 2.13.0, CPU. The graphs of the example's eight micro-batches save 9,000,996 bytes when their losses are "
        "summed first; the step's peak is 9,623,668 bytes. With backward on each loss it is 2,078,852 bytes. Both "
        "print the same losses to four decimals."
    )
    remedy = (
        "Call `(loss / n).backward()` on each micro-batch's loss, inside the loop, and step the optimizer after the "
        "loop. Keep `loss.item()` for the log."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(8):
        x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
        total = total + nn.functional.cross_entropy(model(x), y) / 8
    total.backward()
    optimizer.step()
    if step % 5 == 4:
        print(f"step {step + 1} loss {total.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(8):
        x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
        loss = nn.functional.cross_entropy(model(x), y) / 8
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    if step % 5 == 4:
        print(f"step {step + 1} loss {total.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Calls of backward on sums of losses that could have gone backward one by one."""
        for rank in recording.ranks:
            latest = {record.place: record for record in rank.all(SummedLosses)}
            peak = peak_of(rank)
            for record in latest.values():
                saving = record.saved - record.largest
                if record.parts >= _MANY and peak and saving >= _WORTH_A_LINE * peak:
                    yield self._finding(rank, record, saving, peak)

    def _finding(self, rank: RankRecording, record: SummedLosses, saving: int, peak: int) -> Finding:
        share = min(1.0, saving / peak)
        grave = saving >= _WORTH_A_WARNING and record.parts >= _SURE
        return observed(
            self, rank, severity=grading.of_share(share) if grave else "info", place=record.place,
            message=f"the graphs of {record.parts} losses are alive when backward begins and save "
            f"{words.size(record.saved)}; one at a time they save {words.size(record.largest)}",
            cause="the losses are summed before backward(), and their graphs share no node: none needs another's",
            advice="call `backward()` on each loss in the loop that computes it (gradients accumulate), and step the "
            "optimizer after the loop",
            measured=Measured(bytes=saving, peak_bytes=peak, share=share),
        )  # fmt: skip
