"""Which processes and which calls of a run were observed, and what the others leave open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchvet.analysis.facts import outcome_facts
from torchvet.diagnosis.ranks import absent, unrecorded, weight
from torchvet.finding import Finding, NotChecked
from torchvet.formatting import count, picked, rank_names
from torchvet.recording import RankRecording, Recording
from torchvet.recording.reader import ENOUGH
from torchvet.recording.records.training import Outcome, Unwatched

_SHARE = 0.1
"""Backward calls outside the steps, as a share of these, from which on they may hold another fault."""

_ABSENT = (
    "this report has no record of them: `watch()` and callbacks have it where they run on all ranks and end before the "
    "process group does, and `torchvet run` has the ranks of its host"
)


def gaps(recording: Recording) -> list[NotChecked]:
    """What trained, or may have, and was not observed."""
    found = [NotChecked(check=_what(u), reason=_why(u)) for u in _telling(recording)] + absent_ranks(recording)
    silent = [r for r in recording.ranks if r.child and r.program is not None and r.last(Outcome) is None]
    if silent:
        what = count(len(silent), "process", "processes")
        found.append(NotChecked(check=f"the end of {what} that the program started", reason="killed, or still running"))
    return found


def open_questions(recording: Recording) -> list[NotChecked]:
    """What of it may be as faulty as what was observed is healthy. A few backward calls after a long training (a
    saliency map) are said and leave nothing open."""
    open_ones = [u for u in _telling(recording) if u.kind != "backward" or u.count >= max(ENOUGH, _SHARE * u.of)]
    return [NotChecked(check=_what(u), reason=_why(u)) for u in open_ones]


def absent_ranks(recording: Recording) -> list[NotChecked]:
    """Ranks whose records are not here."""
    found = [NotChecked(check=rank_names(one.ranks), reason=one.reason) for one in absent(recording)]
    missing, _ = unrecorded(recording)
    if missing:
        found.append(NotChecked(check=count(missing, "other rank"), reason=_ABSENT))
    return found


def only_starts(recording: Recording, rank: RankRecording) -> bool:
    """Whether a process only started others, which trained: a launcher."""
    return rank.ticks == 0 and any(other.ticks for other in recording.ranks)


def processes(recording: Recording) -> dict[str, Any]:
    """The processes of a run of several, as facts: what each ran, its steps, how it ended. The outcome is the
    program's own, whoever trained."""
    if not any(rank.child for rank in recording.ranks):
        return {}
    facts: dict[str, Any] = {"processes": [_process(r) for r in recording.ranks if r.program is not None]}
    # The exit status is the launcher's, although a child's facts may be the ones that are shown.
    outcome = next((o for r in recording.ranks if not r.child and (o := r.last(Outcome))), None)
    if outcome is not None:
        facts["outcome"] = outcome_facts(outcome)
        facts["seconds"] = outcome.seconds
    return facts


def once(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """Of findings that differ in their process only, the gravest: all of them run the same lines. Those of ranks that
    train together stay, for `ranks.merged`."""
    # One process that trained: its findings are all its own.
    if sum(rank.ticks > 0 for rank in recording.ranks) < 2:
        return findings
    best: dict[Any, Finding] = {}
    for finding in findings:
        place = finding.location
        where = (place.path, place.line) if place is not None else None
        key = (
            finding.code,
            finding.rank,
            where,
            # Without a holder the message is all that tells two faults of one line apart.
            tuple(finding.holder.path) if finding.holder is not None else finding.message,
        )
        # Findings without a line are all kept: nothing says that two of them are one.
        if where is None or key not in best or weight(finding) > weight(best[key]):
            best[key if where is not None else id(finding)] = finding
    return list(best.values())


def _process(rank: RankRecording) -> dict[str, Any]:
    program, outcome = rank.program, rank.last(Outcome)
    assert program is not None
    return picked(program, "pid", "rank", "argv") | {"steps": rank.ticks, "how": getattr(outcome, "how", None)}


def _telling(recording: Recording) -> Iterator[Unwatched]:
    """The last record of each kind in each process, those of many processes summed up."""
    trained = any(rank.ticks for rank in recording.ranks)
    crowded = 0
    for rank in recording.ranks:
        # The last of each kind: their counts grow, and each contains the one before.
        found = {u.kind: u for u in rank.all(Unwatched)}
        # Of processes each record is another, so here all are added up.
        crowded += sum(u.count for u in rank.all(Unwatched) if u.kind == "process")
        if "backward" in found:
            yield found["backward"]
        # Where somebody trained under observation, a helper that was started says nothing.
        if "started" in found and not trained:
            yield found["started"]
    if crowded:
        yield Unwatched(kind="process", count=crowded)


def _what(gap: Unwatched) -> str:
    if gap.kind == "backward":
        return count(gap.count, "backward call", "backward calls")
    if gap.kind == "process":
        return count(gap.count, "process", "processes") + " that trained"
    return f"what was started with `{gap.command}`"


def _why(gap: Unwatched) -> str:
    if gap.kind == "backward":
        return f"they belong to none of the {gap.of} steps that were counted"
    if gap.kind == "process":
        return "too many processes of the program trained at once or in turn: the first ones were observed"
    return (
        "the program took no step itself, and processes that a shell or another interpreter starts are not observed: "
        "run the training script itself (torchvet run train.py; -m torch.distributed.run works too)"
    )
