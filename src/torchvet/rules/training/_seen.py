"""What source suspects of a line that a run has seen do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from torchvet.source.model import SourceFile

if TYPE_CHECKING:
    from torchvet.finding import Finding, Measured
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records import Place
    from torchvet.rules.base import Rule


def suspected_at(rule: Rule, recording: Recording, place: Place | None, role: str = "") -> Iterator[Finding]:
    """The rule's suspicions about a line, or about what a related line of this role does there."""
    text = recording.sources.get(place.path) if place is not None else None
    if place is None or text is None:
        return
    try:
        found = list(rule.in_source(SourceFile(place.path, text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for one in found:
        lines = {r.line for r in one.related if r.role == role} if role else {one.location.line if one.location else 0}
        if place.line in lines:
            yield one


def as_observed(finding: Finding, rank: RankRecording, message: str, measured: Measured) -> Finding:
    """A suspicion that a run has seen come true."""
    return msgspec.structs.replace(
        finding, evidence="observed", message=message, measured=measured,
        rank=rank.program.rank if rank.program else None, device=rank.program.device if rank.program else None,
    )  # fmt: skip
