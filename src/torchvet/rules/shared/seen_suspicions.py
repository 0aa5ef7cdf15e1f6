"""What source suspects of a line that a run has seen do it."""

from __future__ import annotations

import msgspec

from torchvet.rules.kit import Finding, Findings, Measured, Place, RankRecording, Recording, Rule


def confirmed(
    rule: Rule,
    recording: Recording,
    rank: RankRecording,
    place: Place | None,
    *,
    seen: str,
    measured: Measured,
    role: str = "",
) -> Findings:
    """The rule's suspicions about a line, or about what a related line of this role does there, as a run has seen them
    come true: what it has seen ends the message."""
    for found in suspected_in(rule, recording, place.path) if place is not None else ():
        # `None` without a location, which no line equals.
        lines = {r.line for r in found.related if r.role == role} if role else {found.location and found.location.line}
        if place is not None and place.line in lines:
            yield as_observed(found, rank, f"{found.message}{seen}", measured)


def suspected_in(rule: Rule, recording: Recording, path: str) -> list[Finding]:
    """The rule's suspicions about a file as it was when the program ran."""
    file = recording.model(path)
    try:
        return list(rule.in_source(file)) if file is not None else []
    except (RecursionError, MemoryError):  # expressions that are nested too deeply to be followed
        return []


def as_observed(finding: Finding, rank: RankRecording, message: str, measured: Measured) -> Finding:
    """A suspicion that a run has seen come true."""
    program = rank.program
    place = {"rank": program.rank, "device": program.device} if program is not None else {}
    return msgspec.structs.replace(finding, evidence="observed", message=message, measured=measured, **place)
