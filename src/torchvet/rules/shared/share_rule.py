"""The common part of findings that are graded by a share of the peak, or that are wrong whatever they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.finding import (
    NOTHING_MORE,
    About,
    DetailedFinding,
    Finding,
    Holder,
    Location,
    Measured,
    Related,
    Remedy,
    Severity,
)
from torchvet.recording.records.base import Place, Window
from torchvet.rules.shared.growth_rule import location_of

if TYPE_CHECKING:
    from torchvet.recording import RankRecording
    from torchvet.rules.core.base import Rule


def peak_of(rank: RankRecording) -> int:
    """The highest sum of live bytes seen in any sampled step."""
    return max((w.peak for w in rank.all(Window)), default=0)


def observed(
    rule: Rule,
    rank: RankRecording,
    *,
    severity: Severity,
    message: str,
    place: Place | Location | None,
    cause: str,
    advice: str,
    measured: Measured | None = None,
    holder: Holder | None = None,
    related: list[Related] | None = None,
    about: About = NOTHING_MORE,
) -> Finding:
    """A finding from a run, with what all of them have in common filled in."""
    program = rank.program
    return DetailedFinding(
        code=rule.code, name=rule.name, severity=severity, evidence="observed", message=message,
        location=location_of(place) if isinstance(place, Place) else place, cause=cause,
        remedy=Remedy(summary=advice), related=related or [], holder=holder, measured=measured or Measured(),
        rank=program.rank if program else None, device=program.device if program else None, about=about,
    )  # fmt: skip
