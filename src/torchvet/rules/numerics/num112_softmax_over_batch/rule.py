"""NUM112: log-probabilities over another dimension than that of the classes."""

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
    records,
)
from torchvet.rules.training.fixes.softmax import along_another


class SoftmaxOverBatch(Rule):
    """Probabilities add up to one over the batch, and not over the classes that the loss takes."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # only losses of sampled steps are seen

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The dimension of the classes, where the line writes another one down."""
        return along_another(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses whose log-probabilities add up to one over another dimension than their classes."""
        for record in rank.latest(records.numeric.SoftmaxAxis):
            of = "the samples of a batch" if record.dim == 0 else f"dimension {record.dim}"
            shape = ", ".join(map(str, record.shape))
            message = (
                f"probabilities of shape ({shape}) add up to one over {of}, and the loss takes another dimension for "
                f"the classes ({record.calls} sampled calls)"
            )
            yield self.observed(
                rank,
                record.place,
                message,
                cause="the classes of one sample do not compete: the loss falls where scores move up or down for the "
                "whole batch, and what is learned depends on which samples are together",
                advice="give softmax or log_softmax the dimension of the classes: dim=1, or dim=-1 where they come "
                "last",
                measured=Measured(steps=record.calls),
                related=[self.beside("loss", "takes them", record.loss)] if record.loss is not None else [],
                # Of more than two dimensions a view may have put the classes elsewhere.
                about=About(operands=(str(1 - record.dim),) if len(record.shape) == 2 else ()),
            )
