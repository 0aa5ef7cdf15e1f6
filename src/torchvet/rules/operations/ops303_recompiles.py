"""OPS303: torch.compile compiles again while training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import Trace


class Recompiles(Rule):
    """torch.compile compiles again in the middle of training."""

    code = "OPS303"
    name = "recompiles"
    summary = "torch.compile compiles again in the middle of training"
    severity = "warning"

    what = (
        "Compiled code holds for what it was compiled under: shapes, strides, dtypes, Python values, the state of "
        "modules (its guards). When a guard fails the frame is traced and compiled anew, up to "
        "`torch._dynamo.config.recompile_limit` times; after that it runs uncompiled."
    )
    why = (
        "Each compilation takes as long as hundreds of steps, and when the limit is reached the speed-up is gone "
        "without an error."
    )
    when_not = (
        "Compilations in the first steps are the price of compiling. One more when sizes turn out to vary is "
        "normal: from then on they are symbols."
    )
    proof = (
        "torch 2.13.0, CPU, backend 'eager': 6 batches of 6 sizes took 1,706 ms with `dynamic=False`, which "
        "compiles for each, and 851 ms with `dynamic=True`, imports of the compiler included."
    )
    remedy = (
        "Run with `TORCH_LOGS=recompiles`: it names the guard that failed. Pad or bucket sizes, mark them with "
        "`torch._dynamo.mark_dynamic`, pass numbers that change as tensors, and drop the last short batch "
        "(`drop_last=True`)."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


@torch.compile(backend="eager", dynamic=False)
def loss_of(x):
    return nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))


for step in range(6):
    x = torch.randn(32 + step, 16)
    loss = loss_of(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("dynamic=False", "dynamic=True")

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Compilation within the steps that were profiled, which are none of the first."""
        found = trace_costs.worst(trace, lambda r: r.compiling.seconds if r.compiling is not None else 0.0)
        if found is None or found.rank.compiling is None or found.rank.steps is None:
            return
        rank, compiling = found.rank, found.rank.compiling
        often = f"in {sum(found.rank.compiled_steps)} of {found.rank.steps.count} steps"
        yield trace_costs.observed(
            self, found, trace, cost=compiling,
            message=f"torch.compile compiles {often}; that takes {trace_costs.of_step(rank, compiling.duration)}",
            cause="a guard of the compiled code failed: a size, a Python number or a module's state has changed",
            advice="TORCH_LOGS=recompiles names the guard; make the size dynamic or constant, the number a tensor",
        )  # fmt: skip
