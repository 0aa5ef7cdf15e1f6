"""MEM303: nearly every step asks for sizes that no step before has asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.snapshot_rule import in_memory, named
from torchvet.snapshots.shapes import churn_of

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.snapshots.memory import SnapshotMemory

_MOST_STEPS, _BYTES, _DRIVER = 0.6, 0.25, 0.3
"""Shares: of steps with new sizes, of their forward's bytes in new sizes; of steps that go to the driver for them."""


class ShapesChurn(Rule):
    """Nearly every step asks for sizes that no step before has asked for."""

    code = "MEM303"
    name = "shapes-churn"
    summary = "Nearly every step asks for tensor sizes that no step before has asked for"
    severity = "warning"

    what = (
        "Batches of ever new lengths, resolutions or numbers of boxes make tensors of ever new sizes. The caching "
        "allocator hands out the smallest cached block that fits and splits it; where none fits it asks the driver for "
        "another segment, although much lies free in blocks of other sizes."
    )
    why = (
        "Requests to the driver are slow and the reserved memory grows beyond what is ever in use at once. "
        "cuDNN's benchmark mode and torch.compile begin anew for every new shape."
    )
    when_not = (
        "A last batch that is shorter, a handful of buckets that recur, or new sizes that fit into what is cached cost "
        "little: such a recording is silent, or a note where no request reached the driver."
    )
    proof = (
        "Not measured on a GPU: sizes, steps and requests to the driver are counted in the recording. Made with the "
        "model of the allocator, 60 steps of ever new lengths had new sizes in all of their later 30 steps, "
        "17 % of which "
        "went to the driver; padded to four lengths, 7 % of the later steps had new sizes."
    )
    remedy = (
        "Pad to a few lengths (multiples of 64 or 128, or powers of two), or sort into buckets; "
        "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` or `roundup_power2_divisions:4` makes blocks fit "
        "more often. "
        "Run the largest batch first, so that the cache has its final size."
    )
    runs_on = "cuda"

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    length = 512 + 37 * step
    features = torch.randn(8, length, 512, device="cuda")
    loss = model(features).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    length = -(-(512 + 37 * step) // 1024) * 1024
    features = torch.randn(8, length, 512, device="cuda")
    loss = model(features).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_snapshot(self, snapshot: SnapshotMemory) -> Iterator[Finding]:
        """New sizes in most of the later steps; a warning where the driver is asked for them."""
        for memory in snapshot.devices:
            churn = churn_of(memory)
            if churn is None or churn.with_new < _MOST_STEPS or churn.new_share < _BYTES:
                continue
            yield in_memory(
                self, memory, severity="warning" if churn.driver_share >= _DRIVER else "info", place=churn.place,
                message=f"{churn.with_new:.0%} of the later {churn.steps:,} steps allocate sizes that no step before "
                "had: "
                f"{churn.sizes:,} new sizes, {churn.new_share:.0%} of the forward's bytes",
                cause=f"shapes change from step to step at {named(churn.place)}; {churn.driver_share:.0%} of these "
                "steps "
                f"went to the driver for more, {words.size(memory.reserved)} are reserved for a peak of "
                f"{words.size(memory.peak.bytes)}",
                advice="pad to a few lengths or sort into buckets; run the largest batch first",
                measured=Measured(steps=churn.steps, peak_bytes=memory.peak.bytes),
            )  # fmt: skip
