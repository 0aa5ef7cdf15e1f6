"""What rules about autocast share where they go by a run's records."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from torchvet.recording.records.autocast import HalfOperator
from torchvet.recording.records.base import Record
from torchvet.rules.kit import Place, RankRecording, Related

R = TypeVar("R", bound=Record)


def totals(rank: RankRecording, kind: type[R], *keys: str) -> list[R]:
    """The last record for each key: these are running totals."""
    last: dict[tuple[Hashable, ...], R] = {}
    for record in rank.all(kind):
        last[tuple(getattr(record, key) for key in keys)] = record
    return list(last.values())


def also(role: str, message: str, place: Place | None) -> list[Related]:
    """Another line of a finding, where it is known."""
    return [] if place is None else [Related(role=role, message=message, path=place.path, line=place.line)]


def callers(seen: HalfOperator) -> list[Related]:
    """The lines that called the one where an operator ran: source may name one of them."""
    return [r for place in seen.callers for r in also("called-from", "called from here", place)]
