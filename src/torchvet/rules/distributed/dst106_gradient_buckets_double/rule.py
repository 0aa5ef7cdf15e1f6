"""DST106: gradients lie in memory twice, as themselves and in the buckets that all ranks average."""

from __future__ import annotations

from torchvet.recording import records
from torchvet.rules.distributed._modules import modules_of
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, grading, percent, size

_WORTH, _TOLD = 1 << 20, 0.05
"""Bytes, and the share of the peak, from which on it is said at all: it is torch's default."""


class GradientBucketsDouble(Rule):
    """Gradients lie in memory twice: as themselves, and in the buckets of DistributedDataParallel"""

    severity = "info"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """What gradients that are views of the buckets would save at the peak."""
        highest = max(rank.all(records.base.Window), key=lambda w: w.peak, default=None)
        for module in modules_of(rank) if highest is not None else ():
            if not module.gradient_as_bucket_view and module.bucket_bytes:
                yield from self._doubled(rank, module, highest)

    def _doubled(
        self, rank: RankRecording, module: records.ranks.DistributedModule, highest: records.base.Window | None
    ) -> Findings:
        assert highest is not None
        # Gradients that are not there at the peak make it no higher.
        saved = min(module.gradient_bytes, highest.categories.get("gradients", 0))
        peak = highest.peak + module.bucket_bytes
        if saved >= _WORTH and saved >= _TOLD * peak:
            yield self._finding(rank, module, saved, peak)

    def _finding(self, rank: RankRecording, module: records.ranks.DistributedModule, saved: int, peak: int) -> Finding:
        share = saved / peak
        return self.observed(
            rank,
            module.place,
            f"the gradients of {module.name} lie in memory twice: {size(module.gradient_bytes)}, and "
            f"{size(module.bucket_bytes)} of buckets; {size(saved)} of them ({percent(share)}) are there at the peak",
            severity=grading.of_waste(saved, share),
            cause="DistributedDataParallel copies each gradient into a bucket, averages the bucket over all ranks, and "
            "copies the result back",
            advice=f"pass gradient_as_bucket_view=True: gradients are then views of the buckets, which saves up to "
            f"{size(saved)} and the copies; `grad.detach_()` does not work on them",
            measured=Measured(bytes=saved, peak_bytes=peak, share=share, steps=rank.ticks),
        )
