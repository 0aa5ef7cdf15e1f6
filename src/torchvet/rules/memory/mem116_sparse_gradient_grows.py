"""MEM116: sparse gradients that are never cleared grow with every backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Holder, Location, Measured
from torchvet.recording.training_records import OptimizerUse, SparseGradient
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed, peak_of

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class SparseGradientGrows(Rule):
    """Sparse gradients that are never cleared grow with every backward."""

    code = "MEM116"
    name = "sparse-gradient-grows"
    summary = "Sparse gradients that are never cleared grow with every backward"
    severity = "error"

    what = (
        "`nn.Embedding(sparse=True)` makes a gradient that lists the rows used by the batch. A second backward "
        "without clearing appends its rows to that list: nothing is added up in place, and rows that occur twice "
        "are listed twice. A dense gradient, in contrast, accumulates in place."
    )
    why = (
        "The gradient grows by the batch's rows in every step, and the optimizer works through the whole list "
        "each time, so that steps become slower as well. The mathematics is wrong too: old gradients are applied "
        "again and again (TRN101)."
    )
    when_not = (
        "With `optimizer.zero_grad()` in every step the list starts afresh. Deliberate accumulation over a few "
        "backward passes grows only until it is cleared."
    )
    proof = (
        "torch 2.13.0, CPU. The example's gradient grows by 135 kB per step, with `optimizer.zero_grad()` by 0 "
        "(the losses then differ: old gradients are no longer applied). An `Embedding(10000, 64, sparse=True)` "
        "with 512 indices: 512 entries after one backward, 26,112 after 51, 135,168 bytes more each; the same "
        "without `sparse`: 0 bytes more after the first."
    )
    remedy = (
        "Call `optimizer.zero_grad()` in every step, of every optimizer whose parameters got a gradient. Where "
        "gradients are accumulated on purpose, `weight.grad = weight.grad.coalesce()` adds the duplicate rows "
        "together."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(10_000, 64, sparse=True)
optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
for step in range(40):
    viewed, bought = torch.randint(0, 10_000, (2, 256))
    score = (items(viewed) * items(bought)).sum(1)
    loss = nn.functional.softplus(-score).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(10_000, 64, sparse=True)
optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
for step in range(40):
    viewed, bought = torch.randint(0, 10_000, (2, 256))
    score = (items(viewed) * items(bought)).sum(1)
    loss = nn.functional.softplus(-score).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Sparse gradients whose stored entries only ever get more."""
        for rank in recording.ranks:
            series: dict[str, list[SparseGradient]] = {}
            for record in rank.all(SparseGradient):
                series.setdefault(record.name, []).append(record)
            for points in series.values():
                entries = [p.entries for p in points]
                if len(points) >= 3 and entries == sorted(entries) and entries[-1] > 1.5 * entries[0]:
                    yield self._finding(recording, rank, points)

    def _finding(self, recording: Recording, rank: RankRecording, points: list[SparseGradient]) -> Finding:
        first, last = points[0], points[-1]
        rate = (last.bytes - first.bytes) / max(1, last.tick - first.tick)
        limit = rank.program.memory_limit if rank.program else 0
        exhausted = int(last.tick + max(0, limit - last.bytes - peak_of(rank)) / rate) if limit and rate > 0 else None
        uses = [u for u in rank.all(OptimizerUse) if u.step_place is not None]
        place = uses[-1].step_place if uses else None
        return observed(
            self, rank, severity=grading.of_growth(last.tick, exhausted), place=_sparse_line(recording) or place,
            message=f"the sparse gradient of {last.name} grows by {words.size(rate)} a step: "
            f"{first.entries:,} entries at "
            f"step {first.tick}, {last.entries:,} at step {last.tick}",
            cause="a sparse gradient is added to by appending entries; dense ones are added in place",
            advice="clear the gradients every step (`optimizer.zero_grad()`), or use dense gradients (`sparse=False`)",
            holder=Holder(name=f"{last.name}.grad", kind="attribute", path=[last.name, ".grad"]),
            measured=Measured(bytes_per_step=rate, bytes=last.bytes, steps=last.tick - first.tick,
                              exhausted_at_step=exhausted),
        )  # fmt: skip


def _sparse_line(recording: Recording) -> Location | None:
    """The line that makes a sparse embedding, where there is just one."""
    found = [
        Location(path=path, line=number)
        for path, text in recording.sources.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "sparse=True" in line and "Embedding" in line
    ]
    return found[0] if len(found) == 1 else None
