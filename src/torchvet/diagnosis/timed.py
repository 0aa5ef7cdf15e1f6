"""Says what the line of a finding about speed takes in a run, and lowers the finding where that is next to nothing."""

from __future__ import annotations

import msgspec

from torchvet.analysis.line_times import Timing, timing_of
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.rules.shared.line_costs import Cost

_TOLD = (*(f"OPS10{n}" for n in range(1, 6)), *(f"OPS20{n}" for n in range(1, 8)), "MEM204")
_LOWERED = tuple(f"OPS20{n}" for n in range(1, 8))
"""What costs nothing but the time of its line. On a device a copy's cost is not its line's."""
_NOTHING = 0.02
_ENOUGH = 200
"""Looks from which on a share below that is known to be one."""


def timed(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """The findings, those about speed with the time of their lines."""
    timings = [(rank, timing) for rank in recording.ranks if (timing := timing_of(rank)) is not None]
    return [_timed(finding, timings) for finding in findings] if timings else findings


def _timed(finding: Finding, timings: list[tuple[RankRecording, Timing]]) -> Finding:
    at = finding.location
    # What a rule has measured itself is better than looks at a line.
    if at is None or finding.code not in _TOLD or finding.measured.seconds_per_step is not None:
        return finding
    for rank, timing in timings:
        if finding.rank not in (None, rank.rank):
            continue
        # A finding at a loop's head is about all that the loop runs.
        first, last = timing.files.loop_at(at.path, at.line) or (at.line, at.end_line or at.line)
        cost = Cost(timing, timing.below(at.path, first, last))
        return _with(finding, cost, timing, "loop" if last > (at.end_line or at.line) else "line")
    return finding


def _with(finding: Finding, cost: Cost, timing: Timing, what: str) -> Finding:
    # Not seen in a few looks is no proof that a line is quick.
    known = timing.times.looks >= _ENOUGH
    if not cost.looks and not known:
        return finding
    said = f"the {what} takes {cost.of_step()}" if cost.looks else f"the {what} takes next to nothing of a step"
    # Only warnings: an error is wrong however quick it is.
    low = known and cost.share < _NOTHING and finding.code in _LOWERED and finding.severity == "warning"
    measured = msgspec.structs.replace(finding.measured, seconds_per_step=cost.a_step)
    if finding.measured.share is None:
        # A line that was seen in few steps may be counted as more than one whole step.
        measured = msgspec.structs.replace(measured, share=min(1.0, cost.share))
    return msgspec.structs.replace(
        finding,
        message=f"{finding.message}; {said}",
        severity="info" if low else finding.severity,
        measured=measured,
    )
