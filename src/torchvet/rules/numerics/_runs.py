"""What the rules about numbers share: the failures of a run, and findings at the lines that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals, Operand
from torchvet.rules.kit import (
    NOTHING_MORE,
    About,
    Finding,
    Location,
    Measured,
    Place,
    RankRecording,
    Recording,
    Rule,
    Severity,
)
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics.num101_first_nonfinite.rule import severity_of

if TYPE_CHECKING:
    from torchvet.recording.records.base import Record

R = TypeVar("R", bound="Record")


class Failure(NamedTuple):
    """A failed operator, and how grave that is: see `severity_of`."""

    rank: RankRecording
    record: NonFinite
    severity: Severity

    @property
    def operator(self) -> str:
        """The operator by its name in torch."""
        return say.operator(self.record)


class NumberRule(Rule):
    """A rule about numbers that go wrong at one line of a run: `failed` words an operator that failed."""

    reasons: ClassVar[tuple[str, ...]] = ()
    """Why an operator gave what is not finite, where the rule knows the mechanism."""

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Operators that failed for one of the rule's reasons, one for each line and operator."""
        for failure in failures(rank, *self.reasons):
            yield from self.failed(failure, recording)

    def failed(self, failure: Failure, recording: Recording) -> Iterator[Finding]:
        """What the rule says of one failed operator."""
        return iter(())

    def at(
        self,
        rank: RankRecording,
        place: Place | Location | None,
        message: str,
        cause: str,
        advice: str,
        severity: Severity,
        steps: int | None = None,
        about: About = NOTHING_MORE,
    ) -> Finding:
        """A finding at a line, in a step or after so many."""
        return self.observed(
            rank,
            severity=severity,
            message=message,
            place=place,
            cause=cause,
            advice=advice,
            measured=Measured(steps=steps),
            about=about,
        )

    def in_step(self, failure: Failure, message: str, cause: str = "", advice: str = "") -> Finding:
        """A finding at the line of a failed operator, with the cause and the advice for its reason unless given."""
        rank, record, severity = failure
        cause, advice = cause or say.cause(record), advice or say.advice(record)
        message = f"in step {record.tick} {message}"
        return self.at(rank, record.place, message, cause, advice, severity, record.tick, say.about(record))


def by_place(rank: RankRecording, kind: type[R]) -> Iterator[R]:
    """The last record of a type for each line."""
    last: dict[Place | None, R] = {getattr(record, "place", None): record for record in rank.all(kind)}
    return iter(last.values())


def failures(rank: RankRecording, *reasons: str) -> Iterator[Failure]:
    """Operators that made what is not finite for one of these reasons, one for each line and operator."""
    totals = rank.last(NonFiniteTotals) or NonFiniteTotals(tick=rank.ticks)
    seen = set()
    for record in rank.all(NonFinite):
        # A run fails at the same operator in every later step: the first of these says all.
        key = (record.place, record.reason, record.operator)
        if record.found == "operator" and record.reason in reasons and key not in seen:
            seen.add(key)
            yield Failure(rank, record, severity_of(record, totals, rank.ticks))


def half_operand(record: NonFinite) -> Operand | None:
    """The first operand in float16."""
    return next((o for o in record.operands if o.dtype == "float16"), None)


def share(part: int, whole: int) -> str:
    """`37 %`, never 0 % of something nor 100 % of less than all."""
    if not whole:
        return "0%"
    percent = 100 * part / whole
    if part and percent < 1:
        return "less than 1%"
    return "over 99%" if part < whole and percent > 99 else f"{percent:.0f}%"


def figure(value: float) -> str:
    """A number in three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
