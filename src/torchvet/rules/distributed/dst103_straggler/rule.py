"""DST103: one rank makes all others wait at the collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from torchvet.rules.core import grading
from torchvet.rules.kit import Finding, Findings, Measured, Place, Recording, Severity, Trace, count, ms, percent
from torchvet.rules.shared.trace_costs import LEAST_SHARE, TraceRule, Worst

if TYPE_CHECKING:
    from torchvet.analysis.arrivals import Excess, Meetings
    from torchvet.rules.distributed._late_in_runs import Found

_MATTERS = 0.003
"""Seconds a step below which waiting is nobody's trouble: two equal ranks of one busy machine differed by 0.0013."""
_MUCH = 0.25
"""The share of a step from which on batches of unequal size, now on one rank and now on another, are a warning."""
_MORE = 1.1
"""How many times as much a rank must get to work on for that to be why it is late."""
_OWN = {
    "data": "loading takes",
    "other": "forward pass, with what is around it, takes",
    "backward": "backward pass takes",
    "optimizer": "optimizer takes",
}


class Straggler(TraceRule):
    """One rank arrives late at the collectives, and all others wait for it."""

    severity = "warning"
    found_with = ("run", "--nproc", "2")

    def in_trace(self, trace: Trace) -> Findings:
        """From traces of several ranks: who arrives last as a rule, and for how long the others wait."""
        from torchvet.rules.distributed._arrivals import late_rank

        late = late_rank(trace.ranks)
        if late is None or late.rank.steps is None:
            return
        found = Worst(trace, late.rank, late.seconds, 0)
        if found.share < LEAST_SHARE:
            return
        name = late.rank.rank if late.rank.rank is not None else late.rank.path
        finding = self.loses(
            found,
            f"rank {name} arrives {ms(late.seconds)} a step after the others, who wait for it: {found.of_step()}; "
            f"most of it at {late.name} in the {late.phase} phase",
            f"before it arrives it {late.reason}; it was last at {percent(late.last_share)} of the collectives that "
            "were waited for",
            "find what this rank alone does before that collective: logging, checkpoints, its data, its device",
        )
        yield msgspec.structs.replace(finding, rank=late.rank.rank)

    def in_recording(self, recording: Recording) -> Findings:
        """From a run of several ranks: who has waited least, and what it did meanwhile."""
        from torchvet.analysis.arrivals import meetings_of
        from torchvet.rules.distributed._late_in_runs import late_in_turn, late_rank

        meetings = meetings_of(recording.members)
        if meetings is None:
            return
        found = late_rank(meetings)
        if found is not None:
            yield self._late(meetings, found)
        elif (in_turn := late_in_turn(meetings)) is not None:
            yield self._in_turn(meetings, in_turn)

    def _late(self, meetings: Meetings, found: Found) -> Finding:
        from torchvet.rules.distributed._late_in_runs import names_line

        rank = meetings.ranks[found.at]
        line = meetings.line(found.at)
        line = line if names_line(found, line) else None
        phase, more = meetings.longer(found.at, found.usual)
        more_work = _more_work(meetings, found, phase)
        name = rank.member.rank if rank.member is not None else rank.rank
        late = f"{ms(found.seconds)} late to the collectives of a step of {ms(found.step)}"
        mean = "" if found.usual else " on the average"
        waiting = meetings.others_wait_at(found.at)
        loading = _loading_line(meetings, found.at) if more_work else None
        beside = [
            ("loads", "its batches come from here", loading),
            ("waits", "the other ranks wait here", waiting),
        ]
        return self.observed(
            rank,
            _where(meetings, found, line, phase),
            f"rank {name} comes {late} ({percent(found.share)}){mean}, and all others wait for it",
            cause=f"{_cause(line, phase, more, more_work)}; it was late in {found.often} of "
            f"{count(len(meetings.numbers), 'step')} that were compared",
            advice=_advice(line, phase, more_work),
            severity=_severity(found),
            measured=_measured(meetings, found),
            related=[self.beside(role, text, place) for role, text, place in beside if place is not None],
        )

    def _in_turn(self, meetings: Meetings, found: Found) -> Finding:
        finding = self.observed(
            meetings.ranks[found.at],
            _loading_line(meetings, found.at) or meetings.others_wait_at(found.at),
            f"batches are of unequal size: some rank waits for another for {ms(found.seconds)} of a step of "
            f"{ms(found.step)} ({percent(found.share)})",
            cause=f"in {found.often} of {count(len(meetings.numbers), 'step')} somebody was late, now one rank and now "
            "another, and nearly always the one with the most elements",
            advice="give all ranks about as much to work on in each step: form batches by length, or by their elements",
            # Samples that differ in size make some of it: that is how the data are.
            severity=_severity(found) if found.share >= _MUCH else "info",
            measured=_measured(meetings, found),
        )
        return msgspec.structs.replace(finding, rank=None)


def _severity(found: Found) -> Severity:
    return grading.of_share(found.share) if found.seconds >= _MATTERS else "info"


def _measured(meetings: Meetings, found: Found) -> Measured:
    return Measured(seconds_per_step=found.seconds, share=found.share, steps=len(meetings.numbers))


def _where(meetings: Meetings, found: Found, line: Excess | None, phase: str) -> Place | None:
    """The line that makes the rank late; else that of the phase in which it is."""
    from torchvet.analysis.arrivals import worker_line

    rank = meetings.ranks[found.at]
    if phase == "data":
        others = [r for r in meetings.ranks if r is not rank]
        return worker_line(rank, others) or (line.place if line else _loading_line(meetings, found.at))
    if line is not None:
        return line.place
    return meetings.others_wait_at(found.at) if phase == "backward" else None


def _loading_line(meetings: Meetings, index: int) -> Place | None:
    from torchvet.analysis.line_times import timing_of

    timing = timing_of(meetings.ranks[index])
    lines = [one for one in timing.times.lines if one.phase == "data"] if timing is not None else []
    return lines[0].place if lines else None


def _more_work(meetings: Meetings, found: Found, phase: str) -> str:
    """What a rank gets to work on beyond the others, where that is why it is late; else nothing."""
    sized = meetings.sized(found.at)
    if phase == "data" or sized is None or sized < _MORE:
        return ""
    return f"its batches have {sized:.1f} times as many elements as the others'"


def _cause(line: Excess | None, phase: str, more: float, more_work: str) -> str:
    cause = f"its {_OWN[phase]} {ms(max(0.0, more))} a step longer than the others'"
    cause = f"{more_work}, and {cause}" if more_work else cause
    if line is None:
        return cause
    return f"{cause}, most of it on this line; " + (
        "no other rank spends time there" if line.alone else "the others spend less time there"
    )


def _advice(line: Excess | None, phase: str, more_work: str) -> str:
    if phase == "data":
        return (
            "give this rank's loader what the others have: as many samples and workers, files of one size, as fast a "
            "disk; let workers load ahead (`num_workers`, `prefetch_factor`)"
        )
    if more_work:
        return "give all ranks as much to work on: batches of one size, and as many elements in each"
    if line is not None and line.alone:
        return "do what only this rank does there less often, on all ranks, or in another thread"
    return "find what takes longer on this rank: hooks, larger inputs, logging, a slower or a busy device"
