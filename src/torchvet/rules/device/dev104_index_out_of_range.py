"""DEV104: an index or a class is outside what it selects from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured
from torchvet.recording.device_records import BadValue
from torchvet.rules.base import Rule
from torchvet.rules.device import _crashes
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import RankRecording, Recording

_LATER = (
    "on a GPU this is a device-side assert: the error is raised at whatever the host does next, in another line, says "
    "neither value nor bound, and no CUDA call works any more in the process"
)
_SIMULATED = f"{_LATER}; the simulated GPU raises it at the line itself"


class IndexOutOfRange(Rule):
    """An index or a class is outside what it selects from."""

    code = "DEV104"
    name = "index-out-of-range"
    summary = "An index or a class is outside what it selects from"
    severity = "error"
    words = ()

    what = (
        "`nn.Embedding`, `gather`, `scatter`, `index_select`, `cross_entropy`, `one_hot` and indexing take integers "
        "that must lie within a size: rows of a table, classes that there are scores for. One value that does not "
        "ends the program."
    )
    why = (
        "On the CPU the message is often no more than 'index out of range in self'. On a GPU a kernel asserts: 'CUDA "
        "error: device-side assert triggered' comes later, in another line, names neither value nor bound, and the "
        "process cannot use the GPU any more. The fault is in the data or in a size, not in the GPU."
    )
    when_not = (
        "A class that equals `ignore_index` (-100 unless told) is left out of the loss; negative numbers down to "
        "minus the size are fine where a tensor is indexed with brackets. What the program catches and goes on from is "
        "not told."
    )
    proof = (
        "torch 2.13.0, CPU. In the example 1 of the 448 tokens is 100 in a table of 100 rows, in batch row 17; torch "
        "says 'index out of range in self', torchvet the value, its row and the bound. Of 17 operations "
        "that were tried with such a value, 13 name it and one says where it stands."
    )
    remedy = (
        "Look at what makes the value: a vocabulary that is larger than the table, labels that count from 1, a padding "
        "value that is no `ignore_index`, positions beyond the longest sequence. Check it where the data is read."
    )

    bad_raises = "index out of range in self"

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
words = 100
table = nn.Embedding(words, 16)
head = nn.Linear(16, 2)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(40):
    tokens = torch.randint(0, words, (64, 7))
    labels = (tokens[:, 0] > words // 2).long()
    if step == 3:
        tokens[17, 4] = words
    loss = nn.functional.cross_entropy(head(table(tokens).mean(1)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("nn.Embedding(words, 16)", "nn.Embedding(words + 1, 16)")

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """An error that ended the program for such a value, or a device-side assert."""
        for rank in recording.ranks:
            for record in rank.all(BadValue):
                if record.kind == "index":
                    yield self._finding(rank, record)
                elif record.kind == "unknown":
                    yield self._assert(rank, record)

    def _finding(self, rank: RankRecording, record: BadValue) -> Finding:
        bound = _bound(record)
        name = record.name or f"what {record.operation or 'the operation'} was given"
        value = f"{record.values[0]:.0f}" if record.values else "a value"
        low, high = _range(record)
        later = _SIMULATED if record.simulated else _LATER
        return observed(
            self, rank, severity="error", place=record.place,
            message=f"{name} holds {value}{_crashes.positions(record)}: {record.operation} takes {low} to {high}",
            cause="; ".join(filter(None, [bound, later if record.asserted else ""])),
            advice=_advice(record), measured=Measured(),
        )  # fmt: skip

    def _assert(self, rank: RankRecording, record: BadValue) -> Finding:
        return observed(
            self, rank, severity="error", place=record.place,
            message="a kernel asserted: an index, a class or a probability that it was given is out of range",
            cause="the GPU reports it late: the fault is in this line or in one that ran before it, and the GPU cannot "
            "be read any more to see the value",
            advice="run it on the CPU, or under `torchvet run --simulate-gpu`: there the value, its row and the line "
            "are told; `CUDA_LAUNCH_BLOCKING=1` tells at least the line",
        )  # fmt: skip


def _range(record: BadValue) -> tuple[str, str]:
    low = f"{record.low:.0f}" if record.low is not None else "0"
    return low, f"{record.high - 1:,.0f}" if record.high is not None else "less than there are"


def _bound(record: BadValue) -> str:
    if record.bounded_by:
        return record.bounded_by
    return f"there are {record.high:,.0f} to choose from" if record.high is not None else ""


def _advice(record: BadValue) -> str:
    value = record.values[0] if record.values else 0.0
    if record.ignored is not None and value < 0:
        return f"if {value:.0f} means 'no label', say `ignore_index={value:.0f}`: it is {record.ignored} here"
    if record.high is not None and value == record.high:
        return "the value is the size itself: count from 0, or make the size one larger"
    if value < 0:
        return "a negative value is no index here: look for the padding or the missing entry that it stands for"
    return "make the size larger, or find out where the data gets such a value"
