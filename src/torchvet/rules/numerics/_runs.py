"""What the rules about numbers read out of a run's records."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals, Operand
from torchvet.rules.kit import Iterator, RankRecording, Recording, Severity
from torchvet.rules.numerics.num101_first_nonfinite.rule import severity_of

R = TypeVar("R", bound=Record)


def by_place(rank: RankRecording, kind: type[R]) -> Iterator[R]:
    """The last record of a type for each line."""
    last: dict[Place | None, R] = {getattr(r, "place", None): r for r in rank.all(kind)}
    return iter(last.values())


class Failure(NamedTuple):
    """A failed operator, and how grave that is: see `severity_of`."""

    rank: RankRecording
    record: NonFinite
    severity: Severity


def failures(recording: Recording, *reasons: str) -> Iterator[Failure]:
    """Operators that made what is not finite for one of these reasons, one for each line and operator."""
    for rank in recording.ranks:
        totals = rank.last(NonFiniteTotals) or NonFiniteTotals(tick=rank.ticks)
        seen = set()
        for record in rank.all(NonFinite):
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
