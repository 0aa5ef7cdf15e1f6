"""NUM114: the norm of a gradient penalty is not taken over one sample."""

from __future__ import annotations

from torchvet.rules.kit import Findings, Measured, RankRecording, Recording, Rule, count, records


class PenaltyNormAxis(Rule):
    """The norm of a gradient penalty is taken over other axes than those of one sample."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # only penalties of sampled steps are seen

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Penalties that compare with a target what is no norm of a sample's gradient."""
        for record in rank.latest(records.numeric.PenaltyNorm):
            shape = ", ".join(map(str, record.shape))
            axes = ", ".join(map(str, record.dims))
            message = (
                f"the norm of a gradient of shape ({shape}) over axis {axes} gives {count(record.norms, 'number')} for "
                f"{record.samples:,} samples, and each is drawn to {record.target:g}"
            )
            fewer = record.norms < record.samples
            of = "several samples have one norm together" if fewer else "each part of a sample has a norm of its own"
            yield self.observed(
                rank,
                record.place,
                message,
                cause=f"each sample has one score, and the penalty is on the norm of its whole gradient; here {of}",
                advice="flatten the gradient first: `gradient.flatten(1).norm(2, dim=1)`",
                measured=Measured(steps=record.calls),
            )
