"""MEM206: a large part of the peak is what the optimizer keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.amounts import percent
from torchvet.finding import Finding, Location, Measured, Related, Remedy
from torchvet.recording.dry_records import DryBatch, DryOptimizer, DryUpdate
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.memory._dry import Sized, sized

if TYPE_CHECKING:
    from torchvet.recording import Recording

_SHARE, _FUSED = 0.25, 0.02
"""Shares of the peak: of all optimizers' state; that a fused update must save to be told."""
_BLOCK, _GPUS = 256, 8
_EIGHT_BIT = 1 + 4 / _BLOCK
"""Bytes an element: one, and a float32 scale for each 256, as bitsandbytes lays it out."""


class OptimizerStateDominates(Rule):
    """A large part of the peak is what the optimizer keeps."""

    code = "MEM206"
    name = "optimizer-state-dominates"
    summary = "A large part of the peak is what the optimizer keeps for each parameter"
    severity = "info"

    what = (
        "Adam and AdamW keep two numbers for every parameter, SGD with momentum one, in the parameters' own dtype. "
        "They are made in the first step and stay for good, whatever the batch."
    )
    why = (
        "A smaller batch does not make them smaller. For Adam in float32 they are 8 bytes a parameter, beside 4 of the "
        "parameter and 4 of its gradient: half of what a model takes before the first activation."
    )
    when_not = (
        "Where the batch that is wanted fits, state costs nothing more. Optimizers with less state converge otherwise: "
        "another optimizer is another experiment. The amounts of alternatives are worked out from the parameters that "
        "have state; that of a fused update was measured."
    )
    proof = (
        "torch 2.13.0, CPU, simulated GPU. A model of 1,104,218,112 parameters in bfloat16: AdamW keeps 4,416,872,448 "
        "bytes, 4 a parameter (two bfloat16 each). A model of 16,777,216 in float32: 134,217,728 bytes, 8 a parameter; "
        "the update itself makes 48 MiB of temporaries, with `fused=True` none."
    )
    remedy = (
        "State in 8 bits (`bitsandbytes.optim.AdamW8bit`), sharded over GPUs (`ZeroRedundancyOptimizer`, FSDP), or an "
        "optimizer with less of it (SGD, Adafactor, Lion). `fused=True` leaves out the temporaries of the update."
    )
    runs_on = "cuda"
    found_with = ("run", "--simulate-gpu", "24GiB", "--dry")

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1024)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(20):
    x = torch.randn(32, 1024, device="cuda")
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1024)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
for step in range(20):
    x = torch.randn(32, 1024, device="cuda")
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """The optimizer with most state, where all state is a quarter of the peak."""
        for one in sized(recording):
            optimizers = [o for o in one.rank.all(DryOptimizer) if o.bytes]
            held = sum(o.bytes for o in optimizers)
            if held >= _SHARE * one.size.allocated:
                yield self._finding(one, max(optimizers, key=lambda o: o.bytes), held)

    def _finding(self, one: Sized, most: DryOptimizer, held: int) -> Finding:
        share = held / one.size.allocated
        each = f": {most.tensors} numbers of {most.itemsize} bytes for each" if most.tensors else ""
        place = most.place
        return Finding(
            code=self.code, name=self.name, severity="warning" if one.size.ran_out else "info", evidence="observed",
            message=f"{most.name}'s state is {percent(share)} of the peak of {words.size(one.size.allocated)}: "
            f"{words.size(held)} for {words.number(most.elements)} parameters{each}",
            location=None if place is None else Location(path=place.path, line=place.line, function=place.function),
            cause="it is made in the first step and stays, whatever the batch",
            remedy=Remedy(summary="where memory is short: 8-bit state, state sharded over GPUs, or less state"),
            related=[*_measured(one), *_alternatives(most)],
            measured=Measured(bytes=held, peak_bytes=one.size.allocated, share=share), device="cuda:0",
        )  # fmt: skip


def _measured(one: Sized) -> Iterator[Related]:
    """What was tried in a step of its own."""
    before = next((b for b in one.rank.all(DryBatch) if b.batch == one.size.batch and not b.bounded), None)
    for update in one.rank.all(DryUpdate):
        if before is not None and before.allocated - update.allocated >= _FUSED * before.allocated:
            yield Related(
                role="measured",
                message=f"{update.setting}: the peak of a step is {words.size(update.allocated)} instead of "
                f"{words.size(before.allocated)}",
            )  # fmt: skip


def _alternatives(optimizer: DryOptimizer) -> Iterator[Related]:
    """Worked out from the elements that have state."""
    elements, tensors = optimizer.elements, optimizer.tensors
    if not tensors:
        return
    options = [("8-bit state", tensors * elements * _EIGHT_BIT)]
    if optimizer.itemsize > 2:
        options.append(("bfloat16 state", tensors * elements * 2))
    if tensors > 1:
        options.append(("SGD with momentum", elements * optimizer.itemsize))
    options += [("SGD", 0), (f"sharded over {_GPUS} GPUs, on each", optimizer.bytes / _GPUS)]
    for name, size in options:
        saved = f"{words.size(optimizer.bytes - size)} less"
        yield Related(role="would take", message=f"{name}: {words.size(size)}, {saved}")
