"""TRN113: a schedule has lowered the learning rate so far that the optimizer changes no weight any more."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, records

_STEPS = 20
"""Steps without any change from which on it is more than the end of a schedule."""
_SHARE = 0.25
"""The same, as a part of the run."""
_LOOKS = 3


class LearningRateVanishes(Rule):
    """A schedule lowers the learning rate so far that no weight changes any more."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # a rate that was set by hand is not followed

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Weights that were the same to the last bit through many steps, at a rate that a schedule has brought down."""
        for record in rank.latest(records.training.FallenRate, "place", "made"):
            still = record.until - record.since
            if record.looks >= _LOOKS and still >= max(_STEPS, _SHARE * rank.ticks):
                yield self._finding(rank, record, still)

    def _finding(self, rank: RankRecording, record: records.training.FallenRate, still: int) -> Finding:
        rate = f"{record.rate:.2g}" if record.rate else "0"
        message = (
            f"{record.optimizer} has changed none of {record.parameters} compared parameters from step "
            f"{record.since:,} to step {record.until:,}: {record.schedule} has taken its rate from "
            f"{record.highest:.2g} to {rate}"
        )
        times = f"the schedule was stepped {record.schedule_steps:,} times in these {still:,} steps"
        cause = (
            f"at a rate of {rate} an update is smaller than half the distance to the next number; {times}"
            if record.rate
            else f"at a rate of 0 an optimizer changes nothing; {times}"
        )
        return self.observed(
            rank,
            record.place or record.made,
            message,
            cause=cause,
            advice="step a schedule that counts epochs once per epoch, and give one that counts updates their number; "
            "look at its factor (gamma) and at its end",
            measured=Measured(steps=still),
            related=[self.beside("scheduled", record.schedule, record.made)] if record.made else [],
        )
