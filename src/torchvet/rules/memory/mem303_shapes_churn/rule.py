"""MEM303: nearly every step asks for sizes that no step before has asked for."""

from __future__ import annotations

from torchvet.rules.kit import Findings, Measured, Rule, SnapshotMemory, size
from torchvet.rules.shared.snapshot_rule import in_memory, named
from torchvet.snapshots.shapes import churn_of

_MOST_STEPS, _BYTES, _DRIVER = 0.6, 0.25, 0.3
"""Shares: of steps with new sizes, of their forward's bytes in new sizes; of steps that go to the driver for them."""


class ShapesChurn(Rule):
    """Nearly every step asks for tensor sizes that no step before has asked for."""

    severity = "warning"

    runs_on = "cuda"

    def in_snapshot(self, snapshot: SnapshotMemory) -> Findings:
        """New sizes in most of the later steps; a warning where the driver is asked for them."""
        for memory in snapshot.devices:
            churn = churn_of(memory)
            # Both: a few small tensors of new sizes cost nothing.
            if churn is None or churn.with_new < _MOST_STEPS or churn.new_share < _BYTES:
                continue
            yield in_memory(
                self,
                memory,
                severity="warning" if churn.driver_share >= _DRIVER else "info",
                place=churn.place,
                message=f"{churn.with_new:.0%} of the later {churn.steps:,} steps allocate sizes that no step before "
                f"had: {churn.sizes:,} new sizes, {churn.new_share:.0%} of the forward's bytes",
                cause=f"shapes change from step to step at {named(churn.place)}; {churn.driver_share:.0%} of these "
                f"steps went to the driver for more, {size(memory.reserved)} are reserved for a peak of "
                f"{size(memory.peak.bytes)}",
                advice="pad to a few lengths or sort into buckets; run the largest batch first",
                measured=Measured(steps=churn.steps, peak_bytes=memory.peak.bytes),
            )
