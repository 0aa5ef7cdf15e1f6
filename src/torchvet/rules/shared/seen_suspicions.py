"""What source suspects of a line that a run has seen do it."""

from __future__ import annotations

import msgspec

from torchvet.rules.kit import Finding, Findings, Measured, Place, RankRecording, Recording, Rule


def suspected_at(rule: Rule, recording: Recording, place: Place | None, role: str = "") -> Findings:
    """The rule's suspicions about a line, or about what a related line of this role does there."""
    for one in suspected_in(rule, recording, place.path) if place is not None else ():
        lines = {r.line for r in one.related if r.role == role} if role else {one.location.line if one.location else 0}
        if place is not None and place.line in lines:
            yield one


def suspected_in(rule: Rule, recording: Recording, path: str) -> list[Finding]:
    """The rule's suspicions about a file as it was when the program ran."""
    file = recording.model(path)
    try:
        return list(rule.in_source(file)) if file is not None else []
    except (RecursionError, MemoryError):  # expressions that are nested too deeply to be followed
        return []


def as_observed(finding: Finding, rank: RankRecording, message: str, measured: Measured) -> Finding:
    """A suspicion that a run has seen come true."""
    number, device = (rank.program.rank, rank.program.device) if rank.program else (None, None)
    seen = {"evidence": "observed", "message": message, "measured": measured, "rank": number, "device": device}
    return msgspec.structs.replace(finding, **seen)
