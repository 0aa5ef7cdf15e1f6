"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import Trace


class CollectorPauses(Rule):
    """Python's garbage collector stops the step."""

    code = "OPS302"
    name = "collector-pauses"
    summary = "Python's garbage collector stops the step"
    severity = "info"

    what = (
        "The cyclic collector visits every container object that is alive, torch's modules and the program's own "
        "data included, and no thread runs Python meanwhile. `gc.collect()` does so at once; by itself the oldest "
        "generation comes round as objects pile up."
    )
    why = (
        "A full collection takes some hundred milliseconds in a process with torch loaded, more with large Python "
        "data structures. With several ranks the pauses fall at different times, and each rank waits for all the "
        "others."
    )
    when_not = (
        "A collection at the end of an epoch, or where it frees cycles that hold tensors (then see MEM105). "
        "Pauses that the device's queue covers cost nothing."
    )
    proof = (
        "torch 2.13.0, CPU: `gc.collect()` after each of 40 steps of a small network took 14.3 s, 357 ms a step; "
        "without it the 40 steps took 33 ms, with the same losses."
    )
    remedy = (
        "Take `gc.collect()` out of the step. Where automatic collections cost, call `gc.freeze()` after the "
        "set-up, and `gc.disable()` with a `gc.collect(1)` every some hundred steps, on all ranks at the same "
        "step."
    )

    BAD = """\
import gc

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 32)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("    gc.collect()\n", "").replace("import gc\n\n", "")

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        found = trace_costs.worst(trace, lambda r: r.collector.seconds if r.collector is not None else 0.0)
        if found is None or found.rank.collector is None:
            return
        rank, pauses = found.rank, found.rank.collector
        yield trace_costs.observed(
            self, found, trace, cost=pauses,
            message=f"Python's garbage collector takes {trace_costs.of_step(rank, pauses.duration)}"
            f"{trace_costs.where_text(pauses.where)}",
            cause="a full collection visits every container object of the process, and no Python runs meanwhile",
            advice="take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely",
        )  # fmt: skip
