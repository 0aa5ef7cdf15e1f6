"""What the rules about numbers read out of a run's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from torchvet.recording.nonfinite_records import NonFinite, Operand
from torchvet.recording.records import Place, Record

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording

R = TypeVar("R", bound=Record)


def by_place(rank: RankRecording, kind: type[R]) -> Iterator[R]:
    """The last record of a type for each line."""
    last: dict[Place | None, R] = {getattr(r, "place", None): r for r in rank.all(kind)}
    return iter(last.values())


def failures(recording: Recording, *reasons: str) -> Iterator[tuple[RankRecording, NonFinite]]:
    """Operators that made what is not finite, for one of these reasons."""
    for rank in recording.ranks:
        for record in rank.all(NonFinite):
            if record.found == "operator" and record.reason in reasons:
                yield rank, record


def half_operand(record: NonFinite) -> Operand | None:
    """The first operand in float16."""
    return next((o for o in record.operands if o.dtype == "float16"), None)


def name(record: NonFinite) -> str:
    """An operator as a person writes it."""
    return record.operator.removeprefix("aten.").partition(".")[0].strip("_")


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
