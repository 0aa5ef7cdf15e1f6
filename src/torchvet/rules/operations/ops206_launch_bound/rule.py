"""OPS206: the device waits for launches of kernels that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import RankTrace

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
