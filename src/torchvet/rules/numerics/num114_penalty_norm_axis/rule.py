"""NUM114: the norm of a gradient penalty is not taken over one sample."""

from __future__ import annotations

import ast

from torchvet.rules.kit import (
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    Rule,
    SourceFile,
    count,
    events_at,
    records,
)
from torchvet.source.model import edits, is_call, operand

_NORMS = ("norm", "vector_norm")


class PenaltyNormAxis(Rule):
    """The norm of a gradient penalty is taken over other axes than those of one sample."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # only penalties of sampled steps are seen

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The norm of the flattened gradient, where the finding's line has one call that takes it."""
        calls = [event.call for event in events_at(file, finding) if is_call(event.node, *_NORMS)]
        given = operand(file, calls[0]) if len(calls) == 1 and edits.on_one_line(calls[0]) else None
        if given is None:
            return ()
        flat = edits.called_on(file, given, "flatten(1)")
        dims = [one.value for one in calls[0].keywords if one.arg in ("dim", "axis")]
        positions = 1 if given in calls[0].args else 0
        if dims:
            return [flat, edits.replace(file, dims[0], "1")]
        # A dimension by its position may be anything: `norm(2, 1)`.
        plain = len(calls[0].args) <= positions + 1 and all(
            isinstance(one, ast.Constant) for one in calls[0].args[positions:]
        )
        along = edits.with_argument(file, calls[0], "dim=1") if plain else []
        return [flat, *along] if along else ()

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
