"""MEM205: autocast's half copies of the weights take more memory than half activations save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured, Related
from torchvet.recording.autocast_records import AutocastRegion
from torchvet.recording.memory_records import AutocastPeak
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records import Place

_LOOKED_AT, _WARNING = 0.02, 0.10
"""Shares of the peak that autocast must add: to be told, and to be a warning."""
_WORTH = 32 << 20
"""Bytes below which the addition is only information. Chosen, not measured: a thousandth of a large card."""


class AutocastCopiesExceedSavings(Rule):
    """Autocast's half copies of the weights take more memory than half activations save."""

    code = "MEM205"
    name = "autocast-copies-exceed-savings"
    summary = "Autocast's half copies of the weights take more memory than half activations save"
    severity = "warning"
    found_with = ("run", "--simulate-gpu", "24GiB")

    what = (
        "Autocast keeps the weights in float32 and copies each one that a matrix product reads into half precision. "
        "The copies live until the region ends, and those that autograd saves until the backward pass has used them. "
        "What becomes smaller are the activations."
    )
    why = (
        "With a small batch beside wide layers the copies, half as large as the weights, are more than the activations "
        "save: the peak is higher with autocast than without."
    )
    when_not = (
        "Where activations dominate, as with large batches and long sequences, autocast saves memory. It may pay in "
        "time although it costs memory: this rule speaks of memory alone."
    )
    proof = (
        "torch 2.13.0, CPU. Batch 4 at width 1,024: 0.1 MB at the peak beside the weights, 12.8 MB with autocast; "
        "batch 4,096 at width 256: 25.2 MB, 15.7 MB with autocast. In a run the copies are marked as they are made and "
        "the peak is worked out again without them, with half activations at twice their size."
    )
    remedy = (
        "Raise the batch, if there is room, or keep the weights themselves in bfloat16 (`model.to(torch.bfloat16)`, "
        "with an optimizer that keeps float32 copies). Where only memory counted, take autocast out. Several forward "
        "passes in one region share the copies."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    features, target = torch.randn(4, 2048, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    features, target = torch.randn(4, 2048, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=False):
        loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""
    runs_on = "cuda"

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Windows whose peak would be lower without autocast, by the replay: the one in the middle."""
        for rank in recording.ranks:
            seen = sorted(rank.all(AutocastPeak), key=lambda r: r.peak - r.without)
            typical = seen[len(seen) // 2] if len(seen) >= 2 else None
            if typical is not None and typical.copies and typical.peak - typical.without >= _LOOKED_AT * typical.peak:
                yield self._finding(rank, typical)

    def _finding(self, rank: RankRecording, record: AutocastPeak) -> Finding:
        more = record.peak - record.without
        share = more / record.peak
        copied = record.place
        return observed(
            self, rank, severity="warning" if share > _WARNING and more >= _WORTH else "info",
            place=_region(rank) or copied,
            message=f"autocast raises the peak by {words.size(more)} ({share:.0%}), from {words.size(record.without)}: "
            f"{words.size(record.copies)} in {record.dtype} copies of weights, while {words.size(record.halves)} of "
            "activations in half save as much",
            cause="the batch is small beside the layers: copies of weights are more than activations become smaller",
            advice="raise the batch, or keep the weights in bfloat16; where only memory counted, take autocast out",
            related=[Related(role="copied", message="weights are copied here", path=copied.path, line=copied.line)]
            if copied is not None else [],
            measured=Measured(bytes=more, peak_bytes=record.peak, share=share),
        )  # fmt: skip


def _region(rank: RankRecording) -> Place | None:
    """The line that opens the region, where one line does."""
    enabled = {r.place: r for r in rank.all(AutocastRegion) if r.enabled}
    return next(iter(enabled)) if len(enabled) == 1 else None
