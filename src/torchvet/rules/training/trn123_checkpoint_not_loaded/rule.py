"""TRN123: `load_state_dict(strict=False)` takes nothing of a checkpoint, and says nothing."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, records


class CheckpointNotLoaded(Rule):
    """A model takes nothing of a state dict, because their names have nothing in common."""

    severity = "warning"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Loads of which nothing was taken, unless the same model was given another dict later."""
        for record in rank.latest(records.training.NothingLoaded):
            if not record.later and record.parameters:
                yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.training.NothingLoaded) -> Finding:
        message = (
            f"{record.model} has taken nothing of this state dict: none of its {record.given:,} names is one of the "
            f"model's, which keeps its {record.parameters:,} parameters as they were"
        )
        advice = "make the names agree, and load without `strict=False`, so that what is missing raises"
        if record.fitting and record.prefix.startswith("-"):
            advice = f"put `{record.prefix[1:]}` before the names of the dict, {advice.partition(', ')[2]}"
        elif record.fitting:
            advice = f"take `{record.prefix}` off the names (`k.removeprefix(…)`), {advice.partition(', ')[2]}"
        return self.observed(
            rank,
            record.place,
            message,
            cause=f"the dict has `{record.name}`, the model asks for `{record.wanted}`; without strict nothing raises",
            advice=advice,
            measured=Measured(),
        )
