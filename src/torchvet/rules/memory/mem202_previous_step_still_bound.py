"""MEM202: tensors of the last step are alive while the next one runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Holder, Location, Measured
from torchvet.recording.records import Place
from torchvet.recording.training_records import StaleAtPeak
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.growth_rule import allocated
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class PreviousStepStillBound(Rule):
    """Tensors of the last step are alive while the next one runs."""

    code = "MEM202"
    name = "previous-step-still-bound"
    summary = "Tensors of the last step are alive while the next one runs"
    severity = "warning"

    what = (
        "A variable of a loop keeps its value until it is assigned again. Large results of the last step (logits, "
        "probabilities, an output with its graph) are therefore still alive during the forward pass of the next, "
        "and what is assigned after the backward pass is alive through all of it."
    )
    why = (
        "The peak rises by the size of these tensors although nobody reads them again. Where no backward ran, the "
        "old output keeps its whole graph: two graphs at once."
    )
    when_not = (
        "Variables that are bound anew before the peak (`loss`, the batch) make no difference to it, and neither "
        "do small tensors. In a function the locals die with the call. State that is meant to be carried over is "
        "read again."
    )
    proof = (
        "torch 2.13.0, CPU. Peak of the example: 8,106,872 bytes; with `del probabilities` at the end of the step "
        "6,570,872, which is less by exactly one 256 × 1500 float32 tensor; same output. `del logits` instead "
        "changes nothing: they are rebound before the peak. An evaluation without `no_grad` peaks at 786,432 "
        "bytes in its first batch and at 1,320,960 from the second on, while the old output is still bound."
    )
    remedy = (
        "Move the body of the loop into a function that returns plain numbers (`train_step(...)` returning "
        "`loss.item()`), or `del` the large names at the end of the step."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1500, 32), nn.Linear(32, 1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confidence = 0.0
for step in range(40):
    tokens, following = torch.randint(0, 1500, (2, 256))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probabilities = logits.detach().softmax(1)
    confidence += probabilities.max(1).values.mean().item()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} confidence {confidence / (step + 1):.6f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(1500, 32), nn.Linear(32, 1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confidence = 0.0
for step in range(40):
    tokens, following = torch.randint(0, 1500, (2, 256))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probabilities = logits.detach().softmax(1)
    confidence += probabilities.max(1).values.mean().item()
    del probabilities
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} confidence {confidence / (step + 1):.6f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Variables of the step before that were bound at the peak and never read again, in two windows or more."""
        for rank in recording.ranks:
            seen: dict[tuple[str, ...], list[StaleAtPeak]] = {}
            for record in rank.all(StaleAtPeak):
                seen.setdefault(tuple(sorted(record.names[:1])), []).append(record)
            for records in seen.values():
                typical = sorted(records, key=lambda r: r.saving)[len(records) // 2]
                if len(records) >= 2 and typical.saving >= _WORTH_A_LINE * typical.peak:
                    yield self._finding(recording, rank, typical)

    def _finding(self, recording: Recording, rank: RankRecording, record: StaleAtPeak) -> Finding:
        share = record.saving / record.peak if record.peak else 0.0
        severity = grading.of_share(share) if record.saving >= _WORTH_A_WARNING else "info"
        names = " and ".join(record.names[:2])
        graph = " with the autograd graph behind it" if record.with_graph > record.bytes // 2 else ""
        return observed(
            self, rank, severity=severity, place=self._line(recording, record),
            message=f"{names} of the step before is still bound{graph} when the next step peaks: "
            f"{words.size(record.bytes)}, the peak would be {words.size(record.saving)} ({share:.0%}) lower without",
            cause=f"{names} keeps its value until it is assigned again, which is after the next "
            "forward pass has peaked",
            advice=f"`del {', '.join(record.names[:3])}` at the end of the step, or put the step into a function",
            related=[allocated(s) for s in record.sites[:3]],
            holder=Holder(name=record.names[0], kind="local", path=record.names[:1]),
            measured=Measured(bytes=record.bytes, peak_bytes=record.peak, share=share),
        )  # fmt: skip

    def _line(self, recording: Recording, record: StaleAtPeak) -> Place | Location | None:
        """Where the name is assigned, else where its storage came from."""
        place = record.place
        if place is None:
            return None
        stores = recording.index.stores(record.names[0], f"__main__.{place.function}", place.path)
        return Location(path=stores[0].path, line=stores[0].line, function=stores[0].function) if stores else place


_WORTH_A_LINE = 0.01
"""Share of the peak below which nobody would change a line for it."""
_WORTH_A_WARNING = 512 * 1024
"""Bytes off the peak below which a large share of a tiny peak is only information: a quarter of the smallest segment
(2 MiB) that the caching allocator reserves. Chosen, not measured."""
