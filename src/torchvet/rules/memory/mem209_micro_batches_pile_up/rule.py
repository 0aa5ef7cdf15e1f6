"""MEM209: the graphs of several micro-batches are alive at once."""

from __future__ import annotations

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Growth, Measured, RankRecording, Recording, Rule, grading, size
from torchvet.rules.shared import growth_rule, peaks

_MANY = 3
"""Losses from which on they are micro-batches: two are often a pair that belongs together, as of a discriminator."""
_SURE = 4
"""Losses below which it is a note: they may be views of one batch that one loss compares."""
_WORTH_A_LINE = 0.01
"""Share of the peak below which nothing is said."""
_WORTH_A_WARNING = 512 * 1024
"""Bytes below which it is a note, as for other tensors that make a peak higher (MEM202)."""


class MicroBatchesPileUp(Rule):
    """The graphs of several micro-batches are alive at once."""

    severity = "warning"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Sums of losses that could have gone backward one by one, and what each of several calls leaves behind."""
        from torchvet.analysis.growth import growth_by_pass

        peak = peaks.peak_of(rank)
        for record in rank.latest(records.training.SummedLosses):
            # One at a time, only one graph is alive: at worst the largest.
            saving = record.saved - record.largest
            # Without a peak no share can be told.
            if record.parts >= _MANY and peak and saving >= _WORTH_A_LINE * peak:
                yield self._finding(rank, record, saving, peak)
        pile = rank.last(records.memory.Pile)
        kept = next(iter(growth_by_pass(rank, "training")), None) if pile is not None else None
        # What is kept without a graph may be what the step is for: its predictions, for a metric.
        # The name must account for half of what piles up: else it is another's.
        if pile is not None and kept is not None and peak and 2 * kept.bytes_per_step >= pile.per_call:
            yield self._left_behind(recording, rank, pile, kept, peak)

    def _finding(self, rank: RankRecording, record: records.training.SummedLosses, saving: int, peak: int) -> Finding:
        share = min(1.0, saving / peak)
        grave = saving >= _WORTH_A_WARNING and record.parts >= _SURE
        return self.observed(
            rank,
            severity=grading.of_share(share) if grave else "info",
            place=record.place,
            message=f"the graphs of {record.parts} losses are alive when backward begins and save "
            f"{size(record.saved)}; one at a time they save {size(record.largest)}",
            cause="the losses are summed before backward(), and their graphs share no node: none needs another's",
            advice="call `backward()` on each loss in the loop that computes it (gradients accumulate), and step the "
            "optimizer after the loop",
            measured=Measured(bytes=saving, peak_bytes=peak, share=share),
        )

    def _left_behind(
        self, recording: Recording, rank: RankRecording, pile: records.memory.Pile, kept: Growth, peak: int
    ) -> Finding:
        """Each micro-batch goes backward by itself, and a name keeps what its graph still owns."""
        share, name = min(1.0, pile.bytes / peak), kept.holding.name
        stores = recording.index.stores(*kept.holding.where)
        return self.observed(
            rank,
            severity=grading.of_share(share),
            place=stores[0] if stores else pile.place,
            message=f"{name} keeps {size(kept.bytes_per_step)} more alive after each of a step's {pile.calls} backward "
            f"calls, with autograd graphs, until the step ends",
            cause=f"what goes into {name} brings its graph along. A graph that has gone backward still owns the leaves "
            "that it began at, with their gradients",
            advice=f"let {name} take numbers (`.item()`) or detached tensors",
            related=[self.beside("backward", "the step's backward calls", pile.place)],
            holder=growth_rule.holder_of(kept),
            measured=Measured(bytes=pile.bytes, peak_bytes=peak, share=share),
        )
