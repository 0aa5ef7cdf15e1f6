"""MEM207: a few tensors make the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured
from torchvet.recording.records import SiteBytes, Window
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.growth_rule import allocated as allocated_in_run
from torchvet.rules.memory._temporaries import Pattern, patterns
from torchvet.rules.share_rule import observed
from torchvet.rules.snapshot_rule import allocated, in_memory, named
from torchvet.snapshots.categories import ACTIVATIONS, TEMPORARIES

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import RankRecording, Recording
    from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory
    from torchvet.snapshots.state_at import Row

_BLOCK, _LINE = 0.10, 0.25
"""Shares of the peak: of a single block, to be told at all; of all of its line, to be a warning."""
_SMALL_PEAK = 256 << 20
"""Bytes below which a peak is no one's trouble, whatever it consists of; in a run, where more is known of it, half."""


class LargeTemporary(Rule):
    """A few tensors make the peak."""

    code = "MEM207"
    name = "large-temporary"
    summary = "A few tensors that live for a moment make the peak"
    severity = "warning"

    what = (
        "One operator's result, or what its backward pass makes, is so large that the peak is decided by it: "
        "logits over "
        "a large vocabulary, an attention matrix of length × length, a one-hot encoding, a copy in float32. Softmax "
        "and cross-entropy written out by hand make several such tensors at once."
    )
    why = (
        "The batch or the sequence that fits is decided by this one place; all the rest of the model may use a "
        "fraction of the memory."
    )
    when_not = (
        "Large parameters, gradients and optimizer states are not temporary. A peak that consists of many tensors of "
        "like size, as an ordinary deep network's does, has no single line that makes it. A softmax over classes, or "
        "of similarities that no product reads, is no attention. Attention whose weights are used beside the product "
        "with the values (in a loss, returned) needs its matrix: `info`."
    )
    proof = (
        "torch 2.13.0, CPU. A float32 tensor of 256 × 32,000 takes 32,768,000 bytes. The written-out cross-entropy of "
        "the example saves 65,536,000 bytes in tensors of that size for its backward pass, "
        "`functional.cross_entropy` 32,768,000; both print the same losses to four decimals."
    )
    remedy = (
        "Use the fused form: `functional.cross_entropy` on logits, `functional.scaled_dot_product_attention` "
        "instead of "
        "softmax over a matrix, indices instead of one-hot. Else compute it in chunks over the batch or the sequence, "
        "or under `torch.utils.checkpoint`."
    )

    BAD = """\
import torch
from torch import nn


def cross_entropy(logits, target):
    logits = logits - logits.max(1, keepdim=True).values
    exponentials = logits.exp()
    probabilities = exponentials / exponentials.sum(1, keepdim=True)
    return -probabilities.log()[torch.arange(len(target)), target].mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32000, 16), nn.Linear(16, 32000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    tokens, following = torch.randint(0, 32000, (2, 256))
    loss = cross_entropy(model(tokens), following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn


def cross_entropy(logits, target):
    return nn.functional.cross_entropy(logits, target)


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32000, 16), nn.Linear(16, 32000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    tokens, following = torch.randint(0, 32000, (2, 256))
    loss = cross_entropy(model(tokens), following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """What was written out by hand in the highest sampled step, on whichever device."""
        for rank in recording.ranks:
            window = max(rank.all(Window), key=lambda w: w.peak, default=None)
            if window is None or window.peak < _SMALL_PEAK // 2:
                continue
            for pattern in patterns(rank, recording, window):
                if pattern.bytes > _LINE * window.peak and _of_one(pattern.largest) >= _BLOCK / 4 * window.peak:
                    yield self._observed(rank, window, pattern)

    def _observed(self, rank: RankRecording, window: Window, pattern: Pattern) -> Finding:
        share, largest = pattern.bytes / window.peak, pattern.largest
        shape = " × ".join(f"{size:,}" for size in largest.site.shape)
        return observed(
            self, rank, severity=pattern.severity, place=pattern.place,
            message=f"{words.size(pattern.bytes)} in {pattern.storages} {pattern.what} are {share:.0%} of the peak; "
            f"the largest is {shape} {largest.site.dtype}, {words.size(_of_one(largest))}",
            cause="written out in single operators, each result is kept for the backward pass",
            advice=pattern.instead, related=[allocated_in_run(s) for s in pattern.sites[:4]],
            measured=Measured(bytes=pattern.bytes, peak_bytes=window.peak, share=share),
        )  # fmt: skip

    def in_snapshot(self, snapshot: SnapshotMemory) -> Iterator[Finding]:
        """The line that has most of the peak in temporaries or activations, a tenth of it in one block."""
        for memory in snapshot.devices:
            rows = [r for r in memory.peak.lines if r.category in (TEMPORARIES, ACTIVATIONS) and _large(memory, r)]
            if rows and memory.peak.bytes >= _SMALL_PEAK:
                yield self._finding(memory, rows)

    def _finding(self, memory: DeviceMemory, rows: list[Row]) -> Finding:
        first, peak = rows[0], memory.peak.bytes
        share = first.bytes / peak
        largest = max(first.sizes)
        return in_memory(
            self, memory, severity="warning" if share > _LINE else "info", place=first.place,
            message=f"{words.size(first.bytes)} in {first.blocks} {'block' if first.blocks == 1 else 'blocks'} of "
            f"{'the backward of ' if first.note else ''}{named(first.place)} are {share:.0%} of the peak; the "
            "largest takes "
            f"{words.size(largest)}",
            cause=f"{'the ' + first.operator + ' there' if first.operator else 'the operator there'} makes few "
            "tensors, each of "
            "which is a large part of all that is in use",
            advice=_alternative(first), related=[allocated(r) for r in rows[1:4]],
            measured=Measured(bytes=first.bytes, peak_bytes=peak, share=share),
        )  # fmt: skip


def _large(memory: DeviceMemory, row: Row) -> bool:
    return max(row.sizes, default=0) >= _BLOCK * memory.peak.bytes


def _of_one(site: SiteBytes) -> int:
    return site.bytes // site.storages


def _alternative(row: Row) -> str:
    function = row.place.function.lower() if row.place is not None else ""
    if "attention" in function or "attn" in function:
        return (
            "use `torch.nn.functional.scaled_dot_product_attention`, which does not keep the whole matrix, or "
            "compute it "
            "in chunks"
        )
    if row.operator in ("bmm", "baddbmm", "softmax", "_softmax"):
        return (
            "where it is attention, `torch.nn.functional.scaled_dot_product_attention` does not keep the matrix; else "
            "compute it in chunks, or run it under `torch.utils.checkpoint`"
        )
    if "cross_entropy" in function or "log_softmax" in function:
        return "use `torch.nn.functional.cross_entropy` on the logits, in chunks over the sequence where they are large"
    return "use a fused form where there is one, compute it in chunks, or run it under `torch.utils.checkpoint`"
