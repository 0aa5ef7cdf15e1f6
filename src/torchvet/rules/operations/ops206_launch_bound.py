"""OPS206: the device waits for launches of kernels that are too small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import RankTrace, Trace

_ADVICE = {
    "optimizer": "fused=True (or foreach=True) for the optimizer: a few kernels for all parameters",
    "forward": "torch.compile, CUDA graphs, or a larger batch: fewer and larger kernels",
    "backward": "torch.compile or a larger batch; with DDP fewer, larger buckets",
}


class LaunchBound(Rule):
    """Many small operations: the device waits for the host to launch them."""

    code = "OPS206"
    name = "launch-bound"
    summary = "Many small operations: the device waits for the host to launch them"
    severity = "warning"

    what = (
        "Each operation costs the host some microseconds, whatever its size: Python, dispatch, autograd, the "
        "launch. Kernels that are shorter than that leave the device waiting for the next one."
    )
    why = (
        "The step takes as long as the host needs, and a faster device changes nothing. Typical are optimizers "
        "that go parameter by parameter, norms and activations written out, small batches and small layers."
    )
    when_not = (
        "A profile slows the host down, most of all with stacks, shapes or memory: then this is `info` until a "
        "profile without them shows it. Work that waits for data or for a value on the host is another fault "
        "(OPS301, OPS101)."
    )
    proof = (
        "torch 2.13.0, CPU: AdamW over 80 small parameters, 40 steps: 721 ms parameter by parameter "
        "(foreach=False), 635 ms with foreach=True. In two published traces of a V100, 51 to 63 % of the kernels "
        "were shorter than 10 us, and launches cost 9 to 40 % of the step."
    )
    remedy = (
        "Optimizers with `fused=True` (or the default `foreach`); `torch.compile`, with `mode='reduce-overhead'` "
        "for CUDA graphs where shapes are constant; a larger batch; one operation on a stacked tensor in place of "
        "a loop over small ones."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.Tanh())])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=False)
for step in range(40):
    x = torch.randn(32, 16)
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("foreach=False", "foreach=True")

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """By the idle time in which the host was dispatching, less what recording the events costs by itself."""
        found = trace_costs.worst(trace, self._lost)
        if found is None or found.rank.gpu is None:
            return
        rank, gpu = found.rank, found.rank.gpu
        phase = max(rank.launches, key=lambda p: rank.launches[p])
        slowed = ", ".join(rank.slowed)
        yield trace_costs.observed(
            self, found, trace, severity="info" if slowed else None,
            message=f"the device waits for launches during {trace_costs.of_step(rank, found.seconds)}, most of it in "
            f"the {phase} phase: {gpu.kernels:,.0f} kernels a step, {trace_costs.percent(gpu.tiny_share)} of them "
            "under 10 us",
            cause="the host takes longer to dispatch an operation than the device to do it"
            + (f"; the profile was recorded with {slowed}, which slows the host: record again without" if slowed
               else ""),
            advice=_ADVICE.get(phase, _ADVICE["forward"]),
        )  # fmt: skip

    @staticmethod
    def _lost(rank: RankTrace) -> float:
        return max(0.0, sum(rank.launches.values()) - rank.recording_seconds)
