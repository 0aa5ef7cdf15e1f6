"""What the rules about numbers share: the failures of a run, and findings at the lines that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple, TypeVar

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics.num101_first_nonfinite.rule import severity_of

R = TypeVar("R", bound="records.base.Record")


class Failure(NamedTuple):
    """A failed operator, and how grave that is: see `severity_of`."""

    rank: kit.RankRecording
    record: records.nonfinite.NonFinite
    severity: kit.Severity

    @property
    def operator(self) -> str:
        """The operator by its name in torch."""
        return say.operator(self.record)


class NumberRule(kit.Rule):
    """A rule about numbers that go wrong at one line of a run: `failed` words an operator that failed."""

    reasons: ClassVar[tuple[str, ...]] = ()
    """Why an operator gave what is not finite, where the rule knows the mechanism."""

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> Iterator[kit.Finding]:
        """Operators that failed for one of the rule's reasons, one for each line and operator."""
        for failure in failures(rank, *self.reasons):
            yield from self.failed(failure, recording)

    def failed(self, failure: Failure, recording: kit.Recording) -> Iterator[kit.Finding]:
        """What the rule says of one failed operator."""
        return iter(())

    def at(
        self,
        rank: kit.RankRecording,
        place: kit.Place | kit.Location | None,
        message: str,
        cause: str,
        advice: str,
        severity: kit.Severity,
        steps: int | None = None,
        about: kit.About = kit.NOTHING_MORE,
    ) -> kit.Finding:
        """A finding at a line, in a step or after so many."""
        return self.observed(
            rank,
            severity=severity,
            message=message,
            place=place,
            cause=cause,
            advice=advice,
            measured=kit.Measured(steps=steps),
            about=about,
        )

    def in_step(self, failure: Failure, message: str, cause: str = "", advice: str = "") -> kit.Finding:
        """A finding at the line of a failed operator, with the cause and the advice for its reason unless given."""
        rank, record, severity = failure
        cause, advice = cause or say.cause(record), advice or say.advice(record)
        message = f"in step {record.tick} {message}"
        return self.at(rank, record.place, message, cause, advice, severity, record.tick, say.about(record))


def by_place(rank: kit.RankRecording, kind: type[R]) -> Iterator[R]:
    """The last record of a type for each line."""
    last: dict[kit.Place | None, R] = {getattr(record, "place", None): record for record in rank.all(kind)}
    return iter(last.values())


def failures(rank: kit.RankRecording, *reasons: str) -> Iterator[Failure]:
    """Operators that made what is not finite for one of these reasons, one for each line and operator."""
    totals = rank.last(records.nonfinite.NonFiniteTotals) or records.nonfinite.NonFiniteTotals(tick=rank.ticks)
    seen = set()
    for record in rank.all(records.nonfinite.NonFinite):
        # A run fails at the same operator in every later step: the first of these says all.
        key = (record.place, record.reason, record.operator)
        if record.found == "operator" and record.reason in reasons and key not in seen:
            seen.add(key)
            yield Failure(rank, record, severity_of(record, totals, rank.ticks))


def half_operand(record: records.nonfinite.NonFinite) -> records.nonfinite.Operand | None:
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
