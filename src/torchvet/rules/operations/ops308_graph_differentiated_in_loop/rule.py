"""OPS308: a step runs backward through the same graph again and again, from one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms
from torchvet.recording.records.timing import RepeatedPasses
from torchvet.rules.kit import Finding, Iterator, RankRecording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_A_NODE = 20e-6
"""Seconds that a pass takes by node of its graph, up to which most of that is dispatch. On the CPU one batched pass was
2 to 4 times as fast as many of 10 us a node, and slower than many of 40 us."""
_BATCHED = (
    "one batched pass: `torch.autograd.grad(y, x, torch.eye(len(y)), is_grads_batched=True)` or `torch.func.jacrev`; "
    "where only the sum of the rows is needed, one pass from their sum"
)
_VECTORIZED = "pass `vectorize=True`, or use `torch.func.jacrev`"
_SUMMED = (
    "one `backward()` of the sum, where the gradients only add up; for separate gradients one batched "
    "`torch.autograd.grad(…, is_grads_batched=True)`"
)


class GraphDifferentiatedInLoop(LineCostRule):
    """One line runs backward through the same graph many times in a step."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that went through one graph eight times or more in sampled steps, by their time."""
        for seen in rank.latest(RepeatedPasses, "place"):
            statement = timing.files.statement(seen.place, {})
            cost = Cost(timing, timing.innermost(statement.path, statement.line, statement.end))
            if cost.counts:
                yield self._repeated(rank, seen, cost)

    def _repeated(self, rank: RankRecording, seen: RepeatedPasses, cost: Cost) -> Finding:
        a_node = cost.a_step * seen.steps / seen.passes / max(1, seen.nodes)
        several = f" each of {seen.graphs / seen.steps:,.0f} graphs" if seen.graphs > seen.steps else " the same graph"
        cause = "each pass dispatches every operation of the graph anew"
        if a_node > _A_NODE:
            cause = (
                f"each operation of a pass takes {ms(a_node)}, which is arithmetic more than dispatch: one "
                "batched pass gains little on a CPU, or loses"
            )
        return self.takes(
            rank,
            seen.place,
            f"backward runs through{several} {seen.passes / seen.graphs:,.0f} times in a step: {cost.of_step()}",
            cost,
            cause=cause,
            advice=_VECTORIZED if seen.by_torch else _BATCHED if seen.is_grad else _SUMMED,
            severity=None if a_node <= _A_NODE else "info",
        )
