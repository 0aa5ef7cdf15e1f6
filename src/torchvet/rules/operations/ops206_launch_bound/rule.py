"""OPS206: many small operations, where a few large ones would do: what launching them costs."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from torchvet.formatting import count, ms, percent
from torchvet.recording.records.timing import UpdateTimes
from torchvet.rules.kit import About, Edits, Finding, Iterator, RankRecording, Sequence, SourceFile, about
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, edits

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.readers.trace_facts import Cost as TraceCost
    from torchvet.readers.trace_facts import RankTrace

FEWEST_KERNELS = 16
"""Kernels a step below which there is nothing to launch together."""
_NOTED, _NOTED_STEP = 0.1, 0.001
"""Of a step, and seconds of it, that must be saved for a note."""
_SHARE, _A_STEP = 0.4, 0.004
"""Of a step, and seconds of it, that must be saved for a warning: nobody is wrong to leave an optimizer as it comes."""
_COLD = 2.0
"""Times that an update may take in a step of what it takes when nothing runs between two of them."""
_ADVICE = {
    "optimizer": "fused=True (or foreach=True) for the optimizer: a few kernels for all parameters",
    "forward": "torch.compile, CUDA graphs, or a larger batch: fewer and larger kernels",
    "backward": "torch.compile or a larger batch; with DDP fewer, larger buckets",
}


class LaunchBound(TraceRule, LineCostRule):
    """Many small operations: launching them takes longer than what they do."""

    severity = "warning"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The implementation that was quickest, given where the optimizer is made."""
        way = about(finding).variant
        made = next((r for r in finding.related if r.role == "made"), None)
        if not way or made is None or made.path != file.path or made.line is None:
            return ()
        calls = [e.call for e in file.events_on(made.line) if isinstance(e.node, ast.Call) and _is_optimizer(file, e)]
        # `**options` may have it already.
        if len(calls) != 1 or any(k.arg in (None, "fused", "foreach") for k in calls[0].keywords):
            return ()
        return edits.with_argument(file, calls[0], f"{way}=True")

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Updates that another implementation of the same optimizer makes quicker, measured at the run's end."""
        updates = rank.all(UpdateTimes)
        for update in updates:
            ways = [("fused", update.fused), ("foreach", update.foreach)]
            way, taken = min(((w, s) for w, s in ways if s is not None), key=lambda one: one[1], default=("", math.inf))
            line = update.place.line
            if sum(other.place == update.place for other in updates) > 1:
                continue  # which of the optimizers the line's time went to is not known
            parts = [part for part in timing.below(update.place.path, line, line) if part.phase == "optimizer"]
            whole = Cost(timing, parts)
            # What the line takes far beyond an update of tensors made alike, which are still in the processor's caches,
            # has another cause, such as denormal numbers.
            alike = min(1.0, _COLD * update.plain / whole.a_step) if whole.a_step else 0.0
            saved = Cost(timing, parts, alike * max(0.0, 1 - taken / update.plain))
            if saved.counts and saved.share >= _NOTED and saved.a_step >= _NOTED_STEP:
                yield self._updates(rank, update, way, taken, whole, saved)

    def _updates(
        self, rank: RankRecording, update: UpdateTimes, way: str, taken: float, whole: Cost, saved: Cost
    ) -> Finding:
        related = [self.beside("made", "the optimizer is made here", update.made)] if update.made is not None else []
        return self.observed(
            rank,
            update.place,
            f"the update of {update.name} takes {whole.of_step()}, and {percent(taken / update.plain)} of that with "
            f"{way}=True",
            cause=f"{count(update.tensors, 'tensor')} with {count(update.elements, 'element')} are updated by several "
            f"operations each; measured after the run on tensors of these shapes, an update takes {ms(update.plain)} "
            f"as it is and {ms(taken)} with {way}=True, with which {saved.left()}",
            advice=f"{update.name}(..., {way}=True): results differ by rounding. `torchvet run --try-fixes` times "
            "whole steps with it",
            severity=saved.severity(_SHARE, _A_STEP),
            measured=saved.measured(),
            related=related,
            about=About(variant=way),
        )

    def costs(self, rank: RankTrace) -> Sequence[TraceCost]:
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


def _is_optimizer(file: SourceFile, event: Event) -> bool:
    return file.dotted(event.call.func).startswith("torch.optim.")
