"""What the rules about loss scaling share when they judge a run: scalers, faults, and how these are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from torchvet.rules.core.at_work import AtWork
from torchvet.rules.kit import Finding, Location, Measured, Place, RankRecording, Recording, Related, Severity, records
from torchvet.rules.shared import growth_rule, order_rule, seen_suspicions

__all__ = ["Report", "ScalerRule", "faults", "of", "smaller", "times", "uses"]


_LONG = 1e9
"""The first factor that is not written out."""


class Report(NamedTuple):
    """How a rule reports a record of a run."""

    message: str
    cause: str
    advice: str
    severity: Severity | None = None
    """None: a fault's is an error unless it was applied and changed nothing; a refusal's goes by what came after it."""
    role: str = "stepped"
    """What a fault's other line is to it; empty: that line is not part of the finding."""
    place: Place | Location | None = None
    """None: where the fault is, or where the scaler is made."""


class ScalerRule(order_rule.EventRule):
    """A fault of loss scaling as runs show it. Subclasses name the records that speak of it and report each."""

    needs_at_work: ClassVar[AtWork | None] = "a scaler"
    kinds: ClassVar[tuple[records.scaling.FaultKind, ...]] = ()
    """The faults that the rule reports."""
    refusals: ClassVar[tuple[str, ...]] = ()
    """Parts of the messages by which torch refused what the rule reports."""

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report | None:
        """The report of a fault of the rule's kinds."""
        return None

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report | None:
        """The report of a call that torch refused."""
        return None

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """The report of what the scalers made at one place did."""
        return None

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """The faults, refusals and uses of scalers that the rule reports."""
        for fault in faults(rank, *self.kinds):
            harmless = fault.applied and not fault.changed
            yield from self._reported(rank, fault, self.of_fault(fault, recording), "info" if harmless else "error")
        for fault, severity in _refused(rank, *self.refusals):
            yield from self._reported(rank, fault, self.of_refusal(fault, recording), severity)
        for use in uses(rank):
            report = self.of_use(use)
            if report is not None:
                yield self._observed(rank, report, use.place, use.steps)

    def _reported(
        self, rank: RankRecording, fault: records.scaling.ScalingFault, report: Report | None, severity: Severity
    ) -> Iterator[Finding]:
        if report is None:
            return
        message, related = report.message, list[Related]()
        if fault.waiting and not fault.after:
            message = f"{message.rstrip('.')}; no optimizer has stepped since"
        other = fault.other if report.role and fault.other != fault.place else None
        if other is not None:
            related.append(Related(role=report.role, message=other.function, path=other.path, line=other.line))
        report = report._replace(message=message, severity=report.severity or severity)
        yield self._observed(rank, report, fault.place, fault.steps or fault.count, related)

    def _observed(
        self, rank: RankRecording, report: Report, place: Place | None, steps: int, related: list[Related] | None = None
    ) -> Finding:
        return self.observed(
            rank,
            severity=report.severity or self.severity,
            message=report.message,
            place=report.place or place,
            cause=report.cause,
            advice=report.advice,
            measured=Measured(steps=steps),
            related=related or (),
        )

    def suspected(self, recording: Recording, place: Place | None) -> Location | None:
        """The line that source suspects of the rule's fault and that a run's line may belong to: the same one, else one
        of its function, else the file's only one."""
        here = growth_rule.location_of(place)
        if here is None:
            return None
        found = [f.location for f in seen_suspicions.suspected_in(self, recording, here.path) if f.location is not None]
        same = [at for at in found if at.line <= here.line <= (at.end_line or at.line)]
        near = [at for at in found if (at.function or "<module>") == here.function]
        return next(iter(same or near or (found if len(found) == 1 else [])), None)


def uses(rank: RankRecording) -> list[records.scaling.ScalingUse]:
    """The last record of each place where scalers are made."""
    return rank.latest(records.scaling.ScalingUse, "id")


def faults(rank: RankRecording, *kinds: records.scaling.FaultKind) -> Iterator[records.scaling.ScalingFault]:
    """The last record of each fault of some kinds."""
    return (fault for fault in rank.latest(records.scaling.ScalingFault, "kind", "place") if fault.kind in kinds)


def _refused(rank: RankRecording, *parts: str) -> Iterator[tuple[records.scaling.ScalingFault, Severity]]:
    """What torch refused with one of these messages: an error if the program ended by it; a warning if the program
    caught it, dropped the gradients that waited and never trained again; else for information."""
    outcome = rank.last(records.training.Outcome)
    for fault in faults(rank, "refused") if parts else ():
        part = next((p for p in parts if p in (fault.error or "")), None)
        if part is not None:
            yield fault, _severity(fault, outcome, part)


def _severity(fault: records.scaling.ScalingFault, outcome: records.training.Outcome | None, part: str) -> Severity:
    died = outcome is not None and part in (outcome.error or "")
    failed = outcome is not None and outcome.status != 0
    ended = fault.waiting and not fault.after
    return "error" if died or (ended and failed) else "warning" if ended else "info"


def times(factor: float | None) -> str:
    """A factor for people: `65,536`, `6.1e-05`, `3.5e+13`."""
    if factor is None:
        return "an unknown number of"
    return f"{factor:,.0f}" if 10 <= factor < _LONG else f"{factor:.2g}"


def smaller(factor: float | None) -> str:
    """By how much a factor below 1 makes something smaller, or above 1 larger."""
    if factor is None or factor <= 0:
        return "out of scale"
    return f"{times(factor)} times too large" if factor >= 1 else f"{times(1 / factor)} times too small"


def of(count: int, whole: int) -> str:
    """`38 of 40 steps`."""
    return f"{count:,} of {max(count, whole):,} steps"
