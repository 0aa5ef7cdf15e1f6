"""DST103: one rank makes all others wait at the collectives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import Trace


class Straggler(Rule):
    """One rank arrives late at the collectives, and all others wait for it."""

    code = "DST103"
    name = "straggler"
    summary = "One rank arrives late at the collectives, and all others wait for it"
    severity = "warning"

    what = (
        "A collective ends on all ranks together, once the last has arrived. The rank that is late waits for "
        "nobody; the others wait inside their collective's kernel."
    )
    why = (
        "Every step takes as long as the slowest rank needs. In tables of phases nobody stands out: the wait of "
        "the others is counted as communication or backward, so that all ranks show the same times."
    )
    when_not = (
        "Arrivals that differ from step to step and from rank to rank are jitter: one rank has to be late as a "
        "rule. Pipeline stages differ by design."
    )
    proof = (
        "torch 2.13.0, CPU: rank 0 serialising a small model at every step made 8 steps take 14.6 ms, 10.7 ms "
        "without. In measured runs 200 ms injected into one rank's backward gave the same phase times on all "
        "ranks (292 ms): only arrivals told them apart."
    )
    remedy = (
        "Look at what the late rank alone does: logging, checkpoints, evaluation on rank 0, longer sequences, an "
        "uneven sampler, a slower loader or a throttled device. Do it rarely, on all ranks, or in another thread."
    )

    BAD = """\
import io

import torch
import torch.distributed as dist
from torch import nn

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(8):
    x = torch.randn(64, 64)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), io.BytesIO())
dist.destroy_process_group()
"""

    GOOD = BAD.replace("get_rank() == 0:", "get_rank() == 0 and step % 100 == 99:")

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """From traces of several ranks: who arrives last as a rule, and for how long the others wait."""
        from torchvet.rules.distributed._arrivals import late_rank

        late = late_rank(trace.ranks)
        if late is None or late.rank.steps is None:
            return
        found = trace_costs.Worst(late.rank, late.seconds, 0)
        share = trace_costs.share_of(late.rank, late.seconds)
        if share < trace_costs.LEAST_SHARE:
            return
        name = late.rank.rank if late.rank.rank is not None else late.rank.path
        finding = trace_costs.observed(
            self, found, trace,
            message=f"rank {name} arrives {trace_costs.ms(late.seconds)} a step after the others, who wait for it: "
            f"{trace_costs.of_step(late.rank, late.seconds)}; most of it at {late.name} in the {late.phase} phase",
            cause=f"before it arrives it {late.reason}; it was last at "
            f"{trace_costs.percent(late.last_share)} of the collectives that were waited for",
            advice="find what this rank alone does before that collective: logging, checkpoints, its data, its device",
        )  # fmt: skip
        yield msgspec.structs.replace(finding, rank=late.rank.rank)
