"""Programs of several ranks: one report for all. What ranks have in common is said once, and each gets a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import msgspec

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of, outcome_facts
from torchvet.analysis.members import members
from torchvet.finding import SEVERITIES, Finding
from torchvet.formatting import picked
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.training import Outcome


def merged(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """Of findings that differ in their rank only, the gravest, with the `ranks` that have it; without a rank of its
    own where all that trained have it."""
    trained = {one.rank for one in members(recording) if one.ticks}
    if len(trained) < 2:
        return findings
    alike: dict[Any, list[Finding]] = {}
    numbers: dict[Any, int] = {}
    for finding in findings:
        same = (finding.rank, *_fault(finding))
        # The second of a kind on one rank is held against the second of another.
        numbers[same] = numbers.get(same, 0) + 1
        key = (*_fault(finding), numbers[same]) if finding.rank is not None else id(finding)
        alike.setdefault(key, []).append(finding)
    return [_one_of(group, trained) for group in alike.values()]


def _fault(finding: Finding) -> tuple[Any, ...]:
    place, holder = finding.location, finding.holder
    return (
        finding.code,
        (place.path, place.line) if place is not None else None,
        tuple(holder.path) if holder is not None else None,
    )


def _one_of(group: list[Finding], trained: set[int]) -> Finding:
    if len(group) == 1:
        return group[0]
    worst = max(group, key=weight)
    ranks = sorted({f.rank for f in group if f.rank is not None})
    return msgspec.structs.replace(worst, ranks=ranks, rank=None if set(ranks) >= trained else worst.rank)


def weight(finding: Finding) -> tuple[int, float]:
    """How grave a finding is, for the choice among several of one fault."""
    return SEVERITIES.index(finding.severity), finding.measured.bytes_per_step or finding.measured.bytes or 0


def rank_facts(recording: Recording) -> dict[str, Any]:
    """A row for each rank, and how the program ended: by the rank that failed first."""
    rows = members(recording)
    if not rows:
        return {}
    table = [_row(one) for one in rows]
    facts: dict[str, Any] = {"ranks": table, "outliers": list(_outliers(table))}
    first = _failed_first(rows)
    if first is not None:
        ended = first.last(Outcome)
        assert ended is not None
        facts["outcome"] = outcome_facts(ended) | {"rank": first.rank, "steps": first.ticks}
    return facts


def _row(one: RankRecording) -> dict[str, Any]:
    assert one.member is not None
    facts = facts_of(one, growth_of(one))
    time, outcome = facts.get("time") or {}, one.last(Outcome)
    return picked(one.member, "rank", "host", "restart") | {
        "steps": facts.get("steps", one.ticks),
        "seconds_per_step": time.get("median") or time.get("seconds_per_step"),
        "phases": facts.get("phases") or {},
        "peak_bytes": (facts.get("peak") or {}).get("bytes"),
        "bytes_per_step": growth_of(one).measured,
        "heap_per_step": (facts.get("host") or {}).get("heap_per_step"),
        "how": outcome.how if outcome is not None else None,
        "status": outcome.status if outcome is not None else None,
    }


_SCALE = 1.4826
"""What the median absolute deviation is multiplied with to estimate a standard deviation."""
_FAR, _MUCH, _ENOUGH = 5.0, 0.1, 4
"""How many of those, and what share of the median, a rank must differ by; among how many ranks that says something."""
_COMPARED = ("seconds_per_step", "peak_bytes", "bytes_per_step", "heap_per_step")


def _outliers(table: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Ranks that differ from the others in a column, by its median and median absolute deviation."""
    for column in _COMPARED:
        known = [(row["rank"], float(row[column])) for row in table if row[column] is not None]
        if len(known) < _ENOUGH:
            continue
        middle = median(value for _, value in known)
        spread = _SCALE * median(abs(value - middle) for _, value in known)
        for rank, value in known:
            if abs(value - middle) > max(_FAR * spread, _MUCH * abs(middle)):
                yield {"rank": rank, "column": column, "value": value, "median": middle}


def _failed_first(rows: Sequence[RankRecording]) -> RankRecording | None:
    """The rank whose end made the others end: a launcher terminates the rest, and their connections break."""
    failed: list[tuple[float, RankRecording]] = []
    for one in rows:
        outcome, program = one.last(Outcome), one.program
        if outcome is not None and program is not None and outcome.status not in (0, -_TERMINATED):
            failed.append((program.started + outcome.seconds, one))
    return min(failed, key=lambda pair: pair[0])[1] if failed else None


_TERMINATED = 15
"""The signal by which launchers end ranks."""
