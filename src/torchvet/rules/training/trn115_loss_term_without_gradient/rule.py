"""TRN115: one of several terms of a loss has no graph: it can move no parameter."""

from __future__ import annotations

from torchvet.rules.kit import Findings, Measured, RankRecording, Recording, Rule, count, records

_ENOUGH = 3


class LossTermWithoutGradient(Rule):
    """One of several loss terms, computed of what a model gives, can move no parameter."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # only losses of sampled steps are seen

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Terms that were added without a graph. One that changes may be a constant of the method on purpose."""
        for record in rank.latest(records.numeric.GraphlessTerm):
            null = record.zero == record.calls
            value = "it was 0 in all of them" if null else f"the last one was {record.value:.3g}"
            calls = count(record.calls, "sampled call")
            message = f"a term of the loss has no graph, so that it moves no parameter ({calls}; {value})"
            cause = "all that it was computed of was without a graph, although gradients were on"
            same = "; if it is a distance, its two sides are the same"
            yield self.observed(
                rank,
                record.place,
                message,
                severity="warning" if null and record.calls >= _ENOUGH else "info",
                cause=cause + (same if null else ""),
                advice="compute it of what the model gives that is trained, and not of another model's output or of a "
                "detached one; leave it out if it is meant as a constant",
                measured=Measured(steps=record.calls),
                related=[self.beside("added", "to the loss", record.added)] if record.added is not None else [],
            )
