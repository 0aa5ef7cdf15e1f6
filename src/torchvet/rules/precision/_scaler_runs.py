"""What the rules about loss scaling share when they judge a run: the scalers, what went wrong, and how it is said."""

from __future__ import annotations

from collections.abc import Iterator

from torchvet.recording.records.scaling import FaultKind, ScalingFault, ScalingUse
from torchvet.recording.records.training import Outcome
from torchvet.rules.kit import Finding, Location, Measured, Place, RankRecording, Recording, Related, Rule, Severity
from torchvet.rules.shared.growth_rule import location_of


def uses(rank: RankRecording) -> list[ScalingUse]:
    """The last record of each place where scalers are made."""
    return rank.latest(ScalingUse, "id")


def faults(rank: RankRecording, *kinds: FaultKind) -> Iterator[ScalingFault]:
    """The last record of each mishap of some kinds."""
    last = rank.latest(ScalingFault, "kind", "place")
    return (fault for fault in last if fault.kind in kinds)


def refused(rank: RankRecording, *parts: str) -> Iterator[tuple[ScalingFault, Severity]]:
    """What torch refused with one of these messages: an error where the program ended by it, a warning where it caught
    it, let gradients that waited go and never trained again, and by the way where it did."""
    outcome = rank.last(Outcome)
    for fault in faults(rank, "refused"):
        part = next((p for p in parts if p in (fault.error or "")), None)
        if part is not None:
            died = outcome is not None and part in (outcome.error or "")
            failed = outcome is not None and outcome.status != 0
            ended = fault.waiting and not fault.after
            yield fault, "error" if died or (ended and failed) else "warning" if ended else "info"


def grade(fault: ScalingFault) -> Severity:
    """An error, unless it was applied and has changed nothing."""
    return "error" if fault.changed or not fault.applied else "info"


def seen(
    rule: Rule, rank: RankRecording, fault: ScalingFault, message: str, *, cause: str, advice: str, severity: Severity,
    role: str = "stepped", place: Place | Location | None = None,
) -> Finding:  # fmt: skip
    """A finding at a mishap's line, its other line related."""
    related = []
    if fault.other is not None and fault.other != fault.place:
        related.append(also(role, fault.other))
    if fault.waiting and not fault.after:
        message = f"{message.rstrip('.')}; no optimizer has stepped since"
    return rule.observed(
        rank, severity=severity, message=message, place=place or fault.place, cause=cause, advice=advice,
        measured=Measured(steps=fault.steps or fault.count), related=related,
    )  # fmt: skip


def also(role: str, place: Place) -> Related:
    """Another line of a run."""
    return Related(role=role, message=place.function, path=place.path, line=place.line)


def suspected(rule: Rule, recording: Recording, place: Place | None) -> Location | None:
    """The line that source suspects of the rule's fault and that a run's line may belong to: the same one, else one of
    its function, else the file's only one."""
    from torchvet.source.model import SourceFile

    text = recording.sources.get(place.path) if place is not None else None
    if place is None or text is None:
        return None
    try:
        found = [f.location for f in rule.in_source(SourceFile(place.path, text)) if f.location is not None]
    except (SyntaxError, ValueError, RecursionError):
        return None
    here = location_of(place)
    assert here is not None
    same = [at for at in found if at.line <= here.line <= (at.end_line or at.line)]
    near = [at for at in found if (at.function or "<module>") == here.function]
    return next(iter(same or near or (found if len(found) == 1 else [])), None)


def times(factor: float | None) -> str:
    """A factor for people: `65,536`, `6.1e-05`."""
    if factor is None:
        return "an unknown number of"
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"


def smaller(factor: float | None) -> str:
    """By how much a factor below 1 makes something smaller, or above 1 larger."""
    if factor is None or factor <= 0:
        return "out of scale"
    return f"{times(factor)} times too large" if factor >= 1 else f"{times(1 / factor)} times too small"


def of(count: int, whole: int) -> str:
    """`38 of 40 steps`."""
    return f"{count:,} of {max(count, whole):,} steps"
