"""OPS206: the device waits for launches of kernels that are too small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count, percent
from torchvet.rules.kit import Finding, Sequence
from torchvet.rules.shared.trace_costs import TraceRule, Worst

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace

FEWEST_KERNELS = 16
"""Kernels a step below which there is nothing to launch together."""
_ADVICE = {
    "optimizer": "fused=True (or foreach=True) for the optimizer: a few kernels for all parameters",
    "forward": "torch.compile, CUDA graphs, or a larger batch: fewer and larger kernels",
    "backward": "torch.compile or a larger batch; with DDP fewer, larger buckets",
}


class LaunchBound(TraceRule):
    """Many small operations: the device waits for the host to launch them."""

    severity = "warning"

    def costs(self, rank: RankTrace) -> Sequence[Cost]:
        """None: launches are counted by phase, not by place."""
        return ()

    def seconds_lost(self, rank: RankTrace) -> float:
        """The idle time in which the host was dispatching, less what recording the events costs by itself."""
        # Without steps nobody knows what is work and what its start. A few kernels are nothing to launch together.
        if rank.steps is None or not rank.steps.known or rank.gpu is None or rank.gpu.kernels < FEWEST_KERNELS:
            return 0.0
        return max(0.0, sum(rank.launches.values()) - rank.recording_seconds)

    def slow(self, found: Worst) -> Finding:
        """By the phase in which most launches are waited for."""
        launches, gpu = found.rank.launches, found.rank.gpu
        assert gpu is not None
        phase = max(launches, key=lambda p: launches[p])
        reservation, severity = found.slowed("the host")
        message = (
            f"the device waits for launches during {found.of_step()}, most of it in the {phase} phase: "
            f"{count(gpu.kernels, 'kernel')} a step, {percent(gpu.tiny_share)} of them under 10 us"
        )
        cause = f"the host takes longer to dispatch an operation than the device to do it{reservation}"
        advice = _ADVICE.get(phase, _ADVICE["forward"])
        return self.loses(found, message, cause, advice, severity)
