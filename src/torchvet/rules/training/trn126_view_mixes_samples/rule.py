"""TRN126: a view of a recurrent layer's state puts the numbers of several samples into one row."""

from __future__ import annotations

import math

from torchvet.recording import records
from torchvet.rules.kit import Edits, Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile, calls_at
from torchvet.source.model import edits

_STEPS = 3
"""Sampled steps from which on it is a habit."""


class ViewMixesSamples(Rule):
    """A view of a recurrent layer's state mixes the samples of a batch."""

    severity = "error"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The samples' dimension moved to the front before the view."""
        called = calls_at(file, finding, "view", "reshape")
        # `torch.reshape(state, …)` is called on a module.
        found = [(e, on) for e, on in called if not file.dotted(e.call.func).startswith("torch.")]
        if len(found) != 1 or not edits.on_one_line(found[0][0].call.func):
            return ()
        event, state = found[0]
        return [edits.replace(file, event.call.func, f"{edits.operand(file, state)}.transpose(0, 1).reshape")]

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Views that mix in each sampled step."""
        for record in rank.latest(records.training.MixedSamples, "place"):
            if record.steps >= _STEPS:
                yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.training.MixedSamples) -> Finding:
        state, view = tuple(record.state), tuple(record.view)
        together = max(2, math.prod(view[1:]) // state[2])
        samples = "0 and 1" if together == 2 else f"0 to {min(together, state[1]) - 1}"
        return self.observed(
            rank,
            record.place,
            f"what {record.layer} returned, {state}, is viewed as {view}: row 0 of that has the numbers of samples "
            f"{samples}",
            cause=f"the {state[1]} samples are the second dimension of {state}; a view keeps the order in memory, and "
            f"moves no dimension. It was so in all {record.steps} sampled steps that ran it",
            advice="move the samples to the front first: `.transpose(0, 1).reshape(…)`",
            measured=Measured(steps=record.steps),
        )
