"""Runs a program again with changes that may make its steps quicker, in turns with itself as it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from torchvet.errors import TorchvetError
from torchvet.supervisor.recording_dir import Keep
from torchvet.supervisor.supervise import Observe, child_command
from torchvet.supervisor.trial_sandbox import Shown, Untouched
from torchvet.workflows.repeat import SEED

if TYPE_CHECKING:
    from torchvet.analysis.attempts import Change, Trial
    from torchvet.finding import Report
    from torchvet.recording import Recording
    from torchvet.supervisor.preflight import Program

_ROUNDS = 2
_FEWEST_STEPS = 16
_PATIENCE = 60.0
"""Seconds that each trial may take at least."""
_CHECK = "what would make steps quicker"


@dataclass
class Tries:
    """Trials of one program that ran for `seconds`, until `budget` seconds are over. What they write on the disk is
    undone. `stopped` says why they ended before that."""

    target: Program
    shown: Shown
    budget: float
    steps: int
    seconds: float
    trials: list[Trial] = field(default_factory=list)
    stopped: str = ""
    _longest: float = 0.0

    def run(self, changes: list[Change]) -> list[str]:
        """Try all in turn, the unchanged program first in each round. Gives the names of those never tried."""
        end = time.monotonic() + self.budget
        names = ["none", *(c.name for c in changes)]
        try:
            for number in range(_ROUNDS):
                for name in names:
                    if not self.trials or time.monotonic() + self._longest <= end:
                        self._try(name, number)
        # The report of the program's own run is not to be lost with a trial.
        except (KeyboardInterrupt, click.exceptions.Exit):
            self.stopped = "it was stopped"
        except TorchvetError as error:
            self.stopped = str(error)
        tried = {trial.change for trial in self.trials}
        return [name for name in names if name not in tried]

    def _try(self, name: str, number: int) -> None:
        if any(t.change == name and (t.error or t.run is None) for t in self.trials):
            return  # it would fail again
        began = time.monotonic()
        self.trials.append(self._trial(name, f"{name}, round {number + 1} of {_ROUNDS}"))
        self._longest = max(self._longest, time.monotonic() - began)

    def _trial(self, change: str, trial: str) -> Trial:
        from torchvet.analysis.attempts import Trial
        from torchvet.recording.records.attempt import Attempt

        with Keep(None) as keep, Untouched(self.shown.quiet) as files:
            probes = {"attempt": change, "seed": SEED}
            observe = Observe(keep.directory, keep.rank, self.steps, None, probes, undo=files.folder)
            limit = max(_PATIENCE, 2 * self.seconds, 4 * self._longest)
            progress = self.shown.progress(keep.directory, f"trying {trial}")
            command = child_command(self.target, observe)
            status, seconds = files.run(command, limit, progress, **self.shown.streams())
            recording, outcome = keep.read(status, seconds)
            files.ended(outcome)
            error = outcome.error or (f"the program ended with status {status}" if status else None)
            run = recording.ranks[0].last(Attempt) if recording.ranks else None
            return Trial(change=change, run=run, error=None if outcome.how == "steps-reached" else error)


def with_tries(report: Report, recording: Recording, target: Program, shown: Shown, budget: float) -> Report:
    """The report of a run with what was tried after it in its facts (`tried`), or why nothing was."""
    import msgspec

    from torchvet.analysis.attempts import attempt_facts, candidates, steps_of
    from torchvet.checking.workers import cores

    hindered = _hindered(report)
    if hindered:
        return _without(report, hindered)
    steps, seconds = report.facts["steps"], report.facts.get("seconds") or 0.0
    a_step = report.part("time").get("median") or seconds / steps
    tries = Tries(target, shown, budget, steps_of(a_step, steps), seconds)
    text = "\n".join(recording.sources.values())
    changes = candidates(recording.ranks[0], report.facts, text, cores())
    if not changes:
        return _without(report, "no phase of a step takes a share that a change of settings could shorten")
    untried = tries.run(changes)
    facts = attempt_facts(changes, tries.trials, untried)
    if facts is None:
        error = tries.stopped or next((t.error for t in tries.trials if t.error), None)
        return _without(report, "no run of the unchanged program could be timed" + (f" ({error})" if error else ""))
    tried = msgspec.structs.replace(report, facts={**report.facts, "tried": facts})
    return _without(tried, f"the trials ended early: {tries.stopped}") if tries.stopped else tried


def _hindered(report: Report) -> str:
    """Why a run says nothing of how long its steps take; empty where it does."""
    outcome, steps = report.part("outcome"), report.facts.get("steps") or 0
    if outcome.get("status") and outcome.get("how") != "steps-reached":
        return "the program failed"
    return f"the run had {steps} steps; it takes {_FEWEST_STEPS} to time them" if steps < _FEWEST_STEPS else ""


def _without(report: Report, reason: str) -> Report:
    import msgspec

    from torchvet.finding import NotChecked

    gap = NotChecked(check=_CHECK, reason=reason)
    return msgspec.structs.replace(report, not_checked=[*report.not_checked, gap])
