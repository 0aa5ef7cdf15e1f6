"""NUM112: probabilities over the samples of a batch, and not over what belongs to each."""

from __future__ import annotations

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
    count,
    records,
)
from torchvet.rules.shared.normalised import along_another

_STEPS = 3
"""Sampled calls within a model from which on it is no accident. Chosen, not measured."""


class SoftmaxOverBatch(Rule):
    """Probabilities add up to one over the batch, and not over the classes or positions of each sample."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # only losses of sampled steps are seen

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The dimension of the classes, where the line writes another one down."""
        return along_another(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses whose log-probabilities add up to one over another dimension than their classes, and softmaxes within
        a model that go over the samples."""
        told = set()
        for record in rank.latest(records.numeric.SoftmaxAxis):
            told.add(record.place)
            yield self._of_classes(rank, record)
        for within in rank.latest(records.numeric.NormalizedBatch, "place"):
            if within.place not in told and within.calls >= _STEPS:
                yield self._within(rank, within)

    def _of_classes(self, rank: RankRecording, record: records.numeric.SoftmaxAxis) -> Finding:
        of = "the samples of a batch" if record.dim == 0 else f"dimension {record.dim}"
        shape = ", ".join(map(str, record.shape))
        return self.observed(
            rank,
            record.place,
            f"probabilities of shape ({shape}) add up to one over {of}, and the loss takes another dimension for "
            f"the classes ({record.calls} sampled calls)",
            cause="the classes of one sample do not compete: the loss falls where scores move up or down for the "
            "whole batch, and what is learned depends on which samples are together",
            advice="give softmax or log_softmax the dimension of the classes: dim=1, or dim=-1 where they come last",
            measured=Measured(steps=record.calls),
            related=[self.beside("loss", "takes them", record.loss)] if record.loss is not None else [],
            # Of more than two dimensions a view may have put the classes elsewhere.
            about=About(operands=(str(1 - record.dim),) if len(record.shape) == 2 else ()),
        )

    def _within(self, rank: RankRecording, record: records.numeric.NormalizedBatch) -> Finding:
        shape = ", ".join(map(str, record.shape))
        others = [dim for dim, size in enumerate(record.shape) if dim != record.dim and size > 1]
        sizes = sorted(record.sizes)
        varied = f"; it follows the batch, of {sizes[0]} to {sizes[-1]} samples" if len(sizes) > 1 else ""
        alone = ". For one sample alone each weight is 1" if 1 in sizes else ""
        return self.observed(
            rank,
            record.place,
            f"a softmax of shape ({shape}) adds up to one over the samples of a batch (dimension {record.dim}): what a "
            "sample gets depends on the others beside it",
            cause=f"the dimension is as long as the loss has samples, in {count(record.calls, 'sampled call')}"
            f"{varied}{alone}",
            advice="normalize over what belongs to one sample: its positions or classes "
            + " or ".join(f"(dim={dim})" for dim in others),
            # Rows that are always as many, and come from no loader, may be the nodes of one graph.
            severity="warning" if len(sizes) > 1 or len(record.shape) > 2 or record.loaded else "info",
            measured=Measured(steps=record.calls),
            about=About(operands=(str(others[0]),) if len(others) == 1 else ()),
        )
