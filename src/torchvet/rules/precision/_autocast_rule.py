"""What rules about autocast share: what at work means for them, and how they report a run's records."""

from __future__ import annotations

from typing import ClassVar

from torchvet.rules.core.at_work import AtWork
from torchvet.rules.kit import About, Finding, Measured, Place, RankRecording, Related, Sequence, Severity, records
from torchvet.rules.shared.order_rule import EventRule

Line = tuple[str, str, Place | None]
"""Another line of a finding: its role, what it is, and where, if that is known."""


class AutocastRule(EventRule):
    """A fault of mixed precision: what its silence says depends on a region that was on."""

    words = ("autocast",)
    needs_at_work: ClassVar[AtWork | None] = "autocast"

    def seen_at(
        self,
        rank: RankRecording,
        place: Place | None,
        message: str,
        related: Sequence[Line] = (),
        *,
        cause: str = "",
        advice: str = "",
        severity: Severity | None = None,
        steps: int | None = None,
        operands: tuple[str, ...] = (),
    ) -> Finding:
        """A finding of a run; where no cause or advice is given, the rule's."""
        known = ((role, text, at) for role, text, at in related if at is not None)
        return self.observed(
            rank,
            severity=severity or self.severity,
            message=message,
            place=place,
            cause=cause or self.cause,
            advice=advice or self.advice,
            measured=Measured(steps=steps),
            related=[Related(role=role, message=text, path=at.path, line=at.line) for role, text, at in known],
            about=About(operands=operands),
        )


def half_operators(rank: RankRecording, situation: str) -> list[list[records.autocast.HalfOperator]]:
    """What ran in half precision in a situation, by place."""
    found: dict[Place, list[records.autocast.HalfOperator]] = {}
    for seen in rank.latest(records.autocast.HalfOperator, "place", "situation", "operator", "dtype"):
        if seen.situation == situation:
            found.setdefault(seen.place, []).append(seen)
    return list(found.values())


def callers(seen: records.autocast.HalfOperator) -> list[Line]:
    """The lines that called the one where an operator ran: source may name one of them."""
    return [("called-from", "called from here", place) for place in seen.callers]
