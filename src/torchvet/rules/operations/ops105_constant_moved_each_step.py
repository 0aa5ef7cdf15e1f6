"""OPS105: the same data is copied to the device again in every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.base import Rule
from torchvet.rules.mending import calls_at
from torchvet.rules.operations import _crossings
from torchvet.rules.operations._moves import moved_once
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Edit, Finding
    from torchvet.recording import Recording
    from torchvet.source.model import SourceFile


class ConstantMovedEachStep(Rule):
    """The same data is copied to the device again in every step."""

    code = "OPS105"
    name = "constant-moved-each-step"
    summary = "The same data is copied to the device again in every step"
    severity = "warning"
    words = ()

    what = (
        "A tensor that stays on the host and never changes (class weights, a mask, anchors, positions) is moved with "
        "`.to(device)` inside the loop: a fresh copy in every step, thrown away at its end."
    )
    why = (
        "Each copy comes from memory that is not pinned, so that the host waits for it, and it takes device memory "
        "anew beside whatever else the step needs."
    )
    when_not = (
        "A few numbers cost little (`info`). What is too large to stay on the device for good, and is wanted only now "
        "and then, belongs on the host. On the CPU `.to(device)` gives the tensor back and nothing is copied."
    )
    proof = (
        "Not measured in seconds on a GPU. What is counted: copies of one storage at one version (torch "
        "counts writes), in sampled steps; a tensor that is written to between two copies is another each time."
    )
    remedy = "Move it once, before the loop; in a module register it as a buffer, so that `.to()` takes it along."

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
weights = torch.tensor([1.0, 2.0, 2.0, 1.0])
for step in range(40):
    x = torch.randn(64, 16, device=device)
    target = x[:, :4].argmax(1)
    loss = nn.functional.cross_entropy(model(x), target, weight=weights.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("2.0, 1.0])", "2.0, 1.0], device=device)").replace("weights.to(device)", "weights")

    found_with = ("run", "--simulate-gpu", "24GiB")
    cost = "transfers"

    def mends(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The move done once, where one on the line is of a name that nothing else reads."""
        found = [moved_once(file, event) for event, _ in calls_at(file, finding, "to", "cuda")]
        made = [one for one in found if one]
        return made[0] if len(made) == 1 else ()

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Lines that bring, in every step, the very tensor that they brought before."""
        for rank, record in _crossings.each_step(recording):
            if record.kind != "to device" or not _crossings.mostly(record.repeated, record):
                continue
            large = record.bytes_per_step >= _crossings.LARGE
            yield observed(
                self, rank, severity="warning" if large else "info", place=record.place,
                measured=_crossings.measured(record),
                message=f"the same tensor, {record.examples}, is copied to the device again in every step: "
                f"{_crossings.amount(record)} ({_crossings.seen(record)})",
                cause="it stays on the host and nothing writes to it between the copies",
                advice="move it once, before the loop; in a module, register it as a buffer",
            )  # fmt: skip
