"""TRN131: a layer whose first dimension is the sequence is given batches first, and works along the samples."""

from __future__ import annotations

from torchvet.formatting import count
from torchvet.recording.records.layers import BatchAsSequence
from torchvet.rules.kit import (
    About,
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    Rule,
    SourceFile,
)
from torchvet.rules.training.fixes.batch_first import made_batch_first

_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""


class SequenceFirstGivenBatches(Rule):
    """A layer that reads sequences takes the samples of a batch for one."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """`batch_first=True` where the layer is made."""
        return made_batch_first(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Layers that work along the samples in sampled steps, where none of their kind works along positions."""
        for seen in rank.latest(BatchAsSequence, "place"):
            if seen.steps >= _STEPS and not seen.others:
                yield self._finding(rank, seen)

    def _finding(self, rank: RankRecording, seen: BatchAsSequence) -> Finding:
        shape = (seen.batch, seen.length, seen.width)
        runs = "attention" if seen.layer == "MultiheadAttention" else f"the recurrence of {seen.layer}"
        sizes = seen.sizes if len(seen.sizes) > 1 else []
        moved = f" The first dimension has followed the batch's size ({', '.join(map(str, sizes))})." if sizes else ""
        made = [self.beside("made", "the layer is made here, without `batch_first=True`", seen.made)]
        return self.observed(
            rank,
            seen.place,
            f"{runs} runs over the {seen.batch} samples of the batch, not over the {seen.length} positions: "
            f"the layer was given {shape}",
            cause="without `batch_first=True` the first dimension is the sequence. Here it is that of samples that are "
            "drawn in no order, and no layer of the kind works along the other dimension. It was so in "
            f"{count(seen.steps, 'sampled step')} that trained.{moved}",
            advice="make the layer with `batch_first=True`; or give it `x.transpose(0, 1)`, and turn what that gives",
            measured=Measured(steps=seen.steps),
            related=made if seen.made is not None else [],
            about=About(variant="attention" if seen.layer == "MultiheadAttention" else "recurrence"),
        )
