"""Runs a program again with changes that may make its steps quicker, in turns with itself as it is."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

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
_CHECK = "what would make steps quicker"


def cores() -> int:
    """Cores that this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Tries:
    """Trials of one program, until `budget` seconds are over. What they write on the disk is undone."""

    target: Program
    shown: Shown
    budget: float
    steps: int
    trials: list[Trial] = field(default_factory=list)
    _longest: float = 0.0

    def run(self, changes: list[Change]) -> list[str]:
        """Try all in turn, the unchanged program first in each round. Gives the names of those never tried."""
        end = time.monotonic() + self.budget
        names = ["none", *(c.name for c in changes)]
        for number in range(_ROUNDS):
            for name in names:
                if self.trials and time.monotonic() + self._longest > end:
                    break
                if not self.shown.quiet and sys.stderr.isatty():
                    click.echo(f"torchvet: trying {name}, round {number + 1} of {_ROUNDS}", err=True)
                began = time.monotonic()
                self.trials.append(self._trial(name))
                self._longest = max(self._longest, time.monotonic() - began)
        tried = {trial.change for trial in self.trials}
        return [name for name in names if name not in tried]

    def _trial(self, change: str) -> Trial:
        from torchvet.analysis.attempts import Trial
        from torchvet.recording.records.attempt import Attempt

        with Keep(None) as keep, Untouched(self.shown.quiet) as files:
            probes = {"attempt": change, "seed": SEED}
            observe = Observe(keep.directory, keep.rank, self.steps, None, probes, undo=files.folder)
            limit = max(60.0, 4 * self._longest)
            status, seconds = files.run(child_command(self.target, observe), limit, **self.shown.streams())
            recording, outcome = keep.read(status, seconds)
            files.ended(outcome)
            error = outcome.error or (f"the program ended with status {status}" if status else None)
            run = recording.ranks[0].last(Attempt) if recording.ranks else None
            return Trial(change=change, run=run, error=None if outcome.how == "steps-reached" else error)


def with_tries(report: Report, recording: Recording, target: Program, shown: Shown, budget: float) -> Report:
    """The report of a run with what was tried after it in its facts (`tried`), or why nothing was."""
    import msgspec

    from torchvet.analysis.attempts import attempt_facts, candidates, steps_of
    from torchvet.recording.records.base import Step

    steps = report.facts.get("steps") or 0
    if steps < _FEWEST_STEPS:
        return _without(report, f"the run had {steps} steps; it takes {_FEWEST_STEPS} to time them")
    timed = sum(s.count for s in recording.ranks[0].all(Step))
    seconds = (report.facts.get("outcome") or {}).get("seconds") or 0.0
    tries = Tries(target, shown, budget, steps_of(seconds / max(1, timed), steps))
    changes = candidates(report.facts, recording.sources.values(), cores())
    if not changes:
        return _without(report, "no phase of a step takes a share that a change of settings could shorten")
    untried = tries.run(changes)
    facts = attempt_facts(changes, tries.trials, untried)
    if facts is None:
        error = next((t.error for t in tries.trials if t.error), None)
        return _without(report, "no run of the unchanged program could be timed" + (f" ({error})" if error else ""))
    return msgspec.structs.replace(report, facts={**report.facts, "tried": facts})


def _without(report: Report, reason: str) -> Report:
    import msgspec

    from torchvet.finding import NotChecked

    gap = NotChecked(check=_CHECK, reason=reason)
    return msgspec.structs.replace(report, not_checked=[*report.not_checked, gap])
