"""Judge what the tool said of a case by what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from casebook.case import Case
from casebook.report import Finding, at_least
from casebook.run import Run

TOLERANCE = 0.10
"""Share by which bytes per step may differ from the independent count."""


@dataclass(frozen=True)
class Observation:
    """One program, run bare and under the tool."""

    name: str
    bare: Run
    vetted: Run
    bytes_per_step: float | None = None
    """The independent count, where the case asks for it."""


@dataclass(frozen=True)
class Judgement:
    """What is right about one finding; None where the case does not ask."""

    severity: bool
    line: bool
    holder: bool | None
    bytes: bool | None

    @property
    def rank(self) -> int:
        """How much of it is right."""
        return sum(bool(part) for part in (self.severity, self.line, self.holder, self.bytes))


FixStatus = Literal["proven", "refused", "not verifiable", "disproved", "no edit"]


@dataclass(frozen=True)
class Fix:
    """What became of the edit that torchvet has for a fault."""

    status: FixStatus
    """*proven*: by torchvet and by the casebook's own look; *disproved*: by torchvet alone; *refused*: by torchvet."""
    reason: str = ""


@dataclass(frozen=True)
class VariantScore:
    """How the tool did on one variant of the faulty program."""

    name: str
    found: Judgement | None
    """The best finding of the expected code; None if it was missed."""
    false_alarms: list[str] = field(default_factory=list)
    """Warnings and errors besides that are true of nothing that is known."""
    complaint: str = ""
    """Why there is no report; empty where there is one."""

    @property
    def honest(self) -> bool:
        """Whether there is a report, and nothing in it but what is true."""
        return not (self.false_alarms or self.complaint)


@dataclass(frozen=True)
class Score:
    """How the tool did on one case."""

    case: str
    found: Judgement | None
    """The best finding of the expected code; None if it was missed."""
    fixed_silent: bool
    lookalikes_silent: list[bool]
    undisturbed: bool
    """Every program printed under the tool what it prints without; True for verbs that do not pass it on."""
    false_alarms: int
    """Warnings and errors that are not true, over all programs of the case; for its variants see there."""
    notes: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """All that was said of the faulty program."""
    symptom: str = ""
    """What shows of the fault without torchvet (`casebook.symptom`)."""
    fix: Fix | None = None
    """What became of torchvet's fix (`casebook.fixing`); None if that was not asked."""
    variants: list[VariantScore] = field(default_factory=list)
    """How the tool did on other shapes of the fault (`casebook.shapes`)."""

    @property
    def perfect(self) -> bool:
        """Whether nothing is off."""
        parts = [self.fixed_silent, *self.lookalikes_silent, self.undisturbed, not self.false_alarms, not self.notes]
        if self.fix is not None and self.fix.status == "disproved":
            return False
        found = self.found
        parts += [variant.honest for variant in self.variants]
        return found is not None and False not in (found.severity, found.line, found.holder, found.bytes, *parts)

    @property
    def alarms_in_variants(self) -> int:
        """Warnings and errors that are not true, over all variants."""
        return sum(len(variant.false_alarms) for variant in self.variants)


def judge(case: Case, finding: Finding, counted: float | None) -> Judgement:
    """Compare one finding with what the case expects."""
    expect = case.expect
    held = finding.holder.name if finding.holder else ""
    rate = finding.measured.bytes_per_step if finding.measured else None
    if expect.bytes is not None:
        rate, counted = finding.measured.bytes if finding.measured else None, expect.bytes
    return Judgement(
        severity=at_least(finding.severity, expect.severity),
        line=points_at(finding, expect.file, case.line_numbers()),
        holder=any(name in held for name in expect.holder) if expect.holder else None,
        bytes=None if counted is None else rate is not None and abs(rate - counted) <= TOLERANCE * abs(counted),
    )


def points_at(finding: Finding, file: str, lines: set[int]) -> bool:
    """Whether a finding's location is one of these lines of a file, given relative to the folder of the case."""
    if finding.location is None or finding.location.line not in lines:
        return False
    parts = PurePath(file).parts
    return PurePath(finding.location.path).parts[-len(parts) :] == parts


def best(case: Case, findings: Sequence[Finding], counted: float | None = None) -> Judgement | None:
    """The best of the findings that have the expected code; None where there is none."""
    judged = [judge(case, f, counted) for f in findings if f.code == case.expect.code]
    return max(judged, key=lambda j: j.rank, default=None)


def score(case: Case, faulty: Observation, fixed: Observation, lookalikes: list[Observation]) -> Score:
    """Judge all programs of a case."""
    everything = [faulty, fixed, *lookalikes]
    passed_on = everything if case.expect.command[0] == "run" else []
    true = {case.expect.code, *case.expect.also_allowed}
    alarms = {
        seen.name: [f for f in _findings(seen) if f.loud and not (seen is faulty and f.code in true)]
        for seen in everything
    }
    still = [f for f in _findings(fixed) if f.code == case.expect.code]
    return Score(
        case=case.name,
        found=best(case, _findings(faulty), faulty.bytes_per_step),
        fixed_silent=fixed.vetted.report is not None and not still and not alarms[fixed.name],
        lookalikes_silent=[seen.vetted.report is not None and not alarms[seen.name] for seen in lookalikes],
        undisturbed=all((s.bare.stdout, s.bare.status) == (s.vetted.stdout, _own_status(s)) for s in passed_on),
        false_alarms=sum(len(found) for found in alarms.values()),
        notes=[
            *(f"{seen.name}: {seen.vetted.complaint}" for seen in everything if seen.vetted.report is None),
            *(f"{name}: {finding}" for name, found in alarms.items() for finding in found),
            *(f"{fixed.name}: still {finding}" for finding in still if not finding.loud),
            *_called_healthy(case, faulty),
        ],
        said=[str(finding) for finding in _findings(faulty)],
    )


def _called_healthy(case: Case, faulty: Observation) -> list[str]:
    """A note where a fault that asks for a change was called healthy: worse than to say nothing."""
    report = faulty.vetted.report
    grave = at_least(case.expect.severity, "warning")
    return (
        [f"{faulty.name}: no fault found, says the verdict"] if report is not None and grave and report.healthy else []
    )


def _own_status(seen: Observation) -> int:
    """The program's own exit status: 1 or 3 with a report may be the tool's way to say that there are findings, or that
    it could not judge."""
    run = seen.vetted
    own = run.status in (1, 3) and run.report is not None and seen.bare.status != run.status
    return 0 if own else run.status


def _findings(seen: Observation) -> list[Finding]:
    return seen.vetted.report.said if seen.vetted.report else []
