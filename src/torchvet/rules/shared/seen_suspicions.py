"""What source suspects of a line that a run has seen do it."""

from __future__ import annotations

import msgspec

from torchvet.rules.kit import Finding, Findings, Measured, Place, RankRecording, Recording, Rule
from torchvet.source.model import SourceFile


def suspected_at(rule: Rule, recording: Recording, place: Place | None, role: str = "") -> Findings:
    """The rule's suspicions about a line, or about what a related line of this role does there."""
    for one in suspected_in(rule, recording, place.path) if place is not None else ():
        lines = {r.line for r in one.related if r.role == role} if role else {one.location.line if one.location else 0}
        if place is not None and place.line in lines:
            yield one


def suspected_in(rule: Rule, recording: Recording, path: str) -> list[Finding]:
    """The rule's suspicions about a file as it was when the program ran."""
    text = recording.sources.get(path)
    try:
        return list(rule.in_source(SourceFile(path, text))) if text is not None else []
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def as_observed(finding: Finding, rank: RankRecording, message: str, measured: Measured) -> Finding:
    """A suspicion that a run has seen come true."""
    return msgspec.structs.replace(
        finding, evidence="observed", message=message, measured=measured,
        rank=rank.program.rank if rank.program else None, device=rank.program.device if rank.program else None,
    )  # fmt: skip
