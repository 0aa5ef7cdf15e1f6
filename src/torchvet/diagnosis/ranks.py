"""Programs of several ranks: one report for all. What ranks have in common is said once, and each gets a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import msgspec

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of, outcome_facts
from torchvet.analysis.ranks import is_lost
from torchvet.analysis.unlike_ranks import unlike_facts
from torchvet.finding import SEVERITIES, Finding
from torchvet.formatting import picked
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.ranks import Absent, LastSeen, Stuck
from torchvet.recording.records.training import Outcome


def last_start(recording: Recording) -> tuple[Recording, list[RankRecording]]:
    """The recording without the processes of earlier starts of an elastic launcher, and those."""
    # torchrun counts its restarts in TORCHELASTIC_RESTART_COUNT, which each rank's member has.
    # Each host's launcher counts its own: of one that only waited for another to come back it is lower.
    last: dict[str, int] = {}
    for one in recording.ranks:
        if one.member is not None:
            last[one.member.host] = max(one.member.restart, last.get(one.member.host, 0))
    earlier = [r for r in recording.ranks if r.member is not None and r.member.restart < last[r.member.host]]
    if not earlier:
        return recording, []
    return Recording([one for one in recording.ranks if one not in earlier], recording.path), earlier


def absent(recording: Recording) -> list[Absent]:
    """Ranks of the same launch that the recording does not have, and why: each of them once."""
    seen = {one.rank for one in recording.ranks if one.member is not None}
    found: list[Absent] = []
    for said in (one.last(Absent) for one in recording.ranks):
        missing = [rank for rank in said.ranks if rank not in seen] if said is not None else []
        if said is not None and missing:
            found.append(Absent(ranks=missing, reason=said.reason))
            seen.update(missing)
    return found


def restart_facts(earlier: Sequence[RankRecording]) -> dict[str, Any]:
    """How each earlier start ended: by the rank that failed first."""
    starts: dict[int, list[RankRecording]] = {}
    for one in earlier:
        assert one.member is not None
        starts.setdefault(one.member.restart, []).append(one)
    found = []
    for _, processes in sorted(starts.items()):
        first = failed_first(processes)
        ended = first.last(Outcome) if first is not None else None
        if first is not None and ended is not None:
            found.append(outcome_facts(ended) | {"rank": first.rank, "steps": first.ticks})
    return {"restarts": found} if found else {}


def merged(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """Of findings that differ in their rank only, the gravest, with the `ranks` that have it; without a rank of its
    own where all that trained have it."""
    # A rank that took no step could not have had the fault.
    trained = {one.rank for one in recording.members if one.ticks}
    if len(trained) < 2:
        return findings
    alike: dict[Any, list[Finding]] = {}
    numbers: dict[Any, int] = {}
    for finding in findings:
        same = (finding.rank, *fault(finding))
        # The second of a kind on one rank is held against the second of another.
        numbers[same] = numbers.get(same, 0) + 1
        # What has no rank is one of the whole run already.
        key = (*fault(finding), numbers[same]) if finding.rank is not None else id(finding)
        alike.setdefault(key, []).append(finding)
    everywhere = recorded(recording)[0] == recorded(recording)[1]
    return [_one_of(group, trained, everywhere) for group in alike.values()]


def fault(finding: Finding) -> tuple[Any, ...]:
    """What findings of one fault have in common, on whichever rank."""
    place, holder = finding.location, finding.holder
    return (
        finding.code,
        (place.path, place.line) if place is not None else None,
        tuple(holder.path) if holder is not None else None,
    )


def _one_of(group: list[Finding], trained: set[int], everywhere: bool) -> Finding:
    worst = max(group, key=weight)
    ranks = sorted({f.rank for f in group if f.rank is not None})
    # Only of growth: that another fault is on some ranks alone tells nothing of its cause.
    if worst.measured.bytes_per_step and worst.code.startswith("MEM1") and 0 < len(ranks) < len(trained):
        worst = msgspec.structs.replace(worst, cause=f"{worst.cause}; {_alone(ranks, trained)}")
    if len(group) == 1:
        return worst
    # Where all have it no single rank is to be blamed.
    all_have = everywhere and set(ranks) >= trained
    return msgspec.structs.replace(worst, ranks=ranks, rank=None if all_have else worst.rank)


def _alone(ranks: list[int], trained: set[int]) -> str:
    """Growth on some ranks is what these do alone: logging, evaluating, gathering what others have computed."""
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    return f"of {len(trained)} ranks only {who} {'does' if len(ranks) == 1 else 'do'}"


def weight(finding: Finding) -> tuple[int, float]:
    """How grave a finding is, for the choice among several of one fault."""
    return SEVERITIES.index(finding.severity), finding.measured.bytes_per_step or finding.measured.bytes or 0


def shown(recording: Recording, findings: Sequence[Finding]) -> RankRecording | None:
    """The process whose facts a report shows: that of the gravest finding, else the first. None without any."""
    known = {one.rank: one for one in recording.members}
    worst = findings[0].rank if findings and findings[0].severity != "info" else None
    first = recording.ranks[0] if recording.ranks else None
    return first if worst is None else known.get(worst, first)


def rank_facts(recording: Recording, shown: RankRecording) -> dict[str, Any]:
    """A row for each rank, whose the other facts are, and how the program ended: by the rank that failed first."""
    rows, away = recording.members, absent(recording)
    missing = {"absent": [picked(one, "ranks", "reason") for one in away]} if away else {}
    if not rows:
        # Of several ranks the only one that is recorded.
        return missing | _absence(recording) | ({"rank": shown.rank} if shown.member is not None else {})
    table = [_row(one) for one in rows]
    facts: dict[str, Any] = {"rank": shown.rank, "ranks": table, "outliers": list(outliers(table))}
    facts |= unlike_facts(rows) | missing | _absence(recording)
    first = failed_first(rows)
    if first is not None:
        ended = first.last(Outcome)
        assert ended is not None
        facts["outcome"] = outcome_facts(ended) | {"rank": first.rank, "steps": first.ticks} | _last_facts(first)
    return facts


def recorded(recording: Recording) -> tuple[int, int]:
    """How many of how many ranks are recorded."""
    members = [one.member for one in recording.ranks if one.member is not None]
    here = len({member.rank for member in members})
    several = here > 1 or any(one.last(Absent) is not None for one in recording.ranks)
    # Of a fake group one process is all there is. Without a backend the size is what variables say: a process that is
    # alone may have inherited them.
    groups = [member for member in members if member.backend != "fake" and (member.backend or several)]
    world = max((member.world_size for member in groups), default=0)
    return here, max(here, world)


def unrecorded(recording: Recording) -> tuple[int, int]:
    """How many of how many ranks are not recorded, without those of which is known why (`absent`)."""
    here, world = recorded(recording)
    return max(0, world - here - sum(len(one.ranks) for one in absent(recording))), world


def _absence(recording: Recording) -> dict[str, Any]:
    missing, world = unrecorded(recording)
    return {"absent_ranks": missing, "world_size": world} if missing else {}


def _last_facts(one: RankRecording) -> dict[str, Any]:
    """What a rank did last that could not say how it ended."""
    seen = one.last(LastSeen)
    if seen is None:
        return {}
    place = msgspec.to_builtins(seen.place)
    return {"last": {"step": seen.tick + 1, "phase": seen.phase, "place": place, "call": seen.call}}


def _stuck_facts(one: RankRecording) -> dict[str, Any]:
    """Where a rank's process stood that had not ended some time after its program."""
    stuck = one.last(Stuck)
    if stuck is None:
        return {}
    return {"stuck": {"seconds": stuck.seconds, "place": msgspec.to_builtins(stuck.place), "call": stuck.call}}


def _row(one: RankRecording) -> dict[str, Any]:
    assert one.member is not None
    facts = facts_of(one, growth_of(one))
    time, outcome = facts.get("time") or {}, one.last(Outcome)
    return (
        picked(one.member, "rank", "host", "restart")
        | {
            "steps": facts.get("steps", one.ticks),
            "seconds_per_step": time.get("median") or time.get("seconds_per_step"),
            "phases": facts.get("phases") or {},
            "peak_bytes": (facts.get("peak") or {}).get("bytes"),
            "bytes_per_step": growth_of(one).measured,
            "heap_per_step": (facts.get("host") or {}).get("heap_per_step"),
            "how": outcome.how if outcome is not None else None,
            "status": outcome.status if outcome is not None else None,
        }
        | _last_facts(one)
        | _stuck_facts(one)
    )


# 1 / 0.6745, the third quartile of the normal distribution.
_SCALE = 1.4826
"""What the median absolute deviation is multiplied with to estimate a standard deviation."""
_FAR, _MUCH, _ENOUGH = 5.0, 0.1, 4
"""How many of those, and what share of the median, a rank must differ by; among how many ranks that says something."""
_COMPARED = ("seconds_per_step", "peak_bytes", "bytes_per_step", "heap_per_step")


def outliers(table: Sequence[dict[str, Any]], columns: Sequence[str] = _COMPARED) -> Iterator[dict[str, Any]]:
    """Ranks that differ from the others in a column, by its median and median absolute deviation."""
    for column in columns:
        known = [(row["rank"], float(row[column])) for row in table if row[column] is not None]
        if len(known) < _ENOUGH:
            continue
        middle = median(value for _, value in known)
        spread = _SCALE * median(abs(value - middle) for _, value in known)
        for rank, value in known:
            # The share of the median, because with a spread near 0 the least difference would be far.
            if abs(value - middle) > max(_FAR * spread, _MUCH * abs(middle)):
                yield {"rank": rank, "column": column, "value": value, "median": middle}


def failed_first(rows: Sequence[RankRecording]) -> RankRecording | None:
    """The rank whose end made the others end: a launcher terminates the rest, and their connections break."""
    failed: list[tuple[tuple[bool, float], RankRecording]] = []
    for one in rows:
        outcome, program = one.last(Outcome), one.program
        # SIGTERM is what the launcher sends to the others.
        if outcome is not None and program is not None and outcome.status not in (0, -_TERMINATED):
            # By the clock of the wall; what only says that a peer is gone comes last whenever it ended.
            failed.append(((is_lost(outcome), program.started + outcome.seconds), one))
    return min(failed, key=lambda pair: pair[0])[1] if failed else None


_TERMINATED = 15
"""The signal by which launchers end ranks."""
