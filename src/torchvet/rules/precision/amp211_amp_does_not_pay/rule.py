"""AMP211: mixed precision is on, and measured against float32 it does not pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.analysis.amp import Trial, result_of
from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording, Remedy, Rule, percent, records
from torchvet.rules.shared.growth_rule import location_of

if TYPE_CHECKING:
    from torchvet.analysis.amp import AmpResult

_SLOWER, _NO_FASTER, _SAVES = 1.1, 0.98, 0.9


class AmpDoesNotPay(Rule):
    """Mixed precision is on, and measured against float32 it does not pay."""

    severity = "warning"
    found_with = ("amp",)
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """By the runs of `torchvet amp`: the mode that the program asks for against float32."""
        result = result_of(Trial(mode=r.mode, run=r) for r in rank.all(records.amp.AmpRun))
        mode = result.wanted if result is not None else None
        if result is None or mode is None:
            return
        time, memory = result.ratio(mode), result.memory(mode)
        if time is None or time < _NO_FASTER:
            return
        if memory is None or memory > _SAVES:
            yield self._finding(result, mode, time, "")
        elif time >= _SLOWER:
            yield self._finding(result, mode, time, f", and saves {percent(1 - memory)} of the peak")

    def _finding(self, result: AmpResult, mode: records.amp.AmpMode, time: float, saves: str) -> Finding:
        side, plain = result.sides[mode], result.sides["float32"]
        device = "this CPU" if result.device == "cpu" else "this GPU"
        # The quickest run of the one must be slower than the slowest of the other: else it is noise.
        certain = time >= _SLOWER and side.spread[0] > plain.spread[1]
        how = "natively: what is computed is too small to gain by it" if side.native else "by way of float32"
        return Finding(
            code=self.code,
            name=self.name,
            severity="warning" if certain else "info",
            evidence="observed",
            message=f"a step under {mode} takes {time:.2f} times as long as in float32 on {device}{saves}",
            location=location_of(result.place),
            cause=f"{result.device} computes {mode} {how}",
            remedy=Remedy(summary=f"leave autocast off on {device}"),
            device=result.device,
            measured=Measured(steps=result.steps, seconds_per_step=side.spread[0] - plain.spread[0]),
        )
