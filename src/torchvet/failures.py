"""Explains requests for device memory that failed in a run, from the snapshots that were left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchvet.errors import TorchvetError
from torchvet.finding import Finding, NotChecked, Related
from torchvet.recording import RankRecording, Recording
from torchvet.recording.training_records import MemoryFailure, Outcome
from torchvet.rules import Rule

EXPLAIN = ("MEM304", "MEM301")
"""Rules that are asked about the snapshots. What leaks is the run's own finding, with the name that holds it."""


def explained(recording: Recording, rules: Sequence[Rule]) -> tuple[list[Finding], list[NotChecked]]:
    """What these rules say of the last failure of each rank, and what could not be read."""
    wanted = [rule for rule in rules if rule.code in EXPLAIN]
    findings: list[Finding] = []
    gaps: list[NotChecked] = []
    for rank in recording.ranks if wanted else ():
        failure = next((f for f in reversed(rank.all(MemoryFailure)) if f.snapshot is not None), None)
        if failure is None or failure.snapshot is None:
            continue
        try:
            found = list(_of(rank, Path(failure.snapshot), wanted))
        except (TorchvetError, OSError) as error:
            gaps.append(NotChecked(check="what was alive when memory ran out", reason=str(error)))
            continue
        several = len(recording.ranks) > 1
        findings += [msgspec.structs.replace(f, rank=rank.rank) for f in found] if several else found
    return findings, gaps


def _of(rank: RankRecording, path: Path, rules: Sequence[Rule]) -> Iterator[Finding]:
    from torchvet.readers.isolated import read_snapshot
    from torchvet.snapshots.memory import SnapshotMemory

    memory = SnapshotMemory(read_snapshot(path), None)
    outcome = rank.last(Outcome)
    caught = outcome is not None and outcome.how != "out-of-memory"
    for rule in rules:
        for finding in rule.in_snapshot(memory):
            yield _told(finding, path, caught)


def _told(finding: Finding, path: Path, caught: bool) -> Finding:
    """With the file that was left; an error that the program caught is no fault."""
    left = Related(role="left beside", message=f"{path} (torchvet inspect)")
    related = [left, *finding.related]
    if not caught:
        return msgspec.structs.replace(finding, related=related)
    message = f"{finding.message}; the program caught the error and went on"
    return msgspec.structs.replace(finding, related=related, severity="info", message=message)
