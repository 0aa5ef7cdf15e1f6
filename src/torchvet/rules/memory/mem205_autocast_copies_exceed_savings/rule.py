"""MEM205: autocast's half copies of the weights take more memory than half activations save."""

from __future__ import annotations

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, Place, RankRecording, Recording, Related, Rule, size

_LOOKED_AT, _WARNING = 0.02, 0.10
"""Shares of the peak that autocast must add: to be reported, and to be a warning."""
_WORTH = 32 << 20
"""Bytes below which the addition is only information. Chosen, not measured: a thousandth of a large card."""


class AutocastCopiesExceedSavings(Rule):
    """Autocast's half copies of the weights take more memory than half activations save."""

    severity = "warning"
    found_with = ("run", "--simulate-gpu", "24GiB")

    runs_on = "cuda"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Windows whose peak would be lower without autocast, by the replay: the one in the middle."""
        seen = sorted(rank.all(records.memory.AutocastPeak), key=lambda r: r.peak - r.without)
        # The middle one, so that one odd window does not decide.
        typical = seen[len(seen) // 2] if len(seen) >= 2 else None
        if typical is not None and typical.copies and typical.peak - typical.without >= _LOOKED_AT * typical.peak:
            yield self._finding(rank, typical)

    def _finding(self, rank: RankRecording, record: records.memory.AutocastPeak) -> Finding:
        more = record.peak - record.without
        share = more / record.peak
        copied = record.place
        return self.observed(
            rank,
            severity="warning" if share > _WARNING and more >= _WORTH else "info",
            place=_region(rank) or copied,
            message=f"autocast raises the peak by {size(more)} ({share:.0%}), from {size(record.without)}: "
            f"{size(record.copies)} in {record.dtype} copies of weights, while {size(record.halves)} of "
            "activations in half save as much",
            cause="the batch is small beside the layers: copies of weights are more than activations become smaller",
            advice="raise the batch, or keep the weights in bfloat16; where only memory counted, take autocast out",
            related=[Related(role="copied", message="weights are copied here", path=copied.path, line=copied.line)]
            if copied is not None
            else [],
            measured=Measured(bytes=more, peak_bytes=record.peak, share=share),
        )


def _region(rank: RankRecording) -> Place | None:
    """The line that opens the region, where one line does."""
    enabled = {r.place: r for r in rank.all(records.autocast.AutocastRegion) if r.enabled}
    return next(iter(enabled)) if len(enabled) == 1 else None
