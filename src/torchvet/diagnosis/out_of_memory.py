"""Explains requests for device memory that failed in a run, and judges the history of one that ended, from the
snapshots that were left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from torchvet.errors import TorchvetError
from torchvet.finding import Finding, NotChecked, Related
from torchvet.recording import RankRecording, Recording
from torchvet.recording.opening import inside
from torchvet.recording.records.dry import DrySize
from torchvet.recording.records.memory import MemoryHistory
from torchvet.recording.records.training import MemoryFailure, Outcome
from torchvet.rules import Rule

EXPLAIN = ("MEM304", "MEM301")
"""Rules that are asked about a failure. What leaks is the run's own finding, with the name that holds it."""
JUDGE = ("MEM301", "MEM303")
"""Rules that are asked about the history of a run: the others hear of what they need while it runs."""


def explained(recording: Recording, rules: Sequence[Rule]) -> tuple[list[Finding], list[NotChecked]]:
    """What these rules say of the last failure of each rank and of its history, and what could not be read."""
    findings: list[Finding] = []
    gaps: list[NotChecked] = []
    for rank in recording.ranks:
        found = _of_rank(recording, rank, rules, gaps)
        several = len(recording.ranks) > 1
        # With one process a rank would be a number that nobody has given.
        findings += [msgspec.structs.replace(f, rank=rank.rank) for f in found] if several else found
    return findings, gaps


def _of_rank(recording: Recording, rank: RankRecording, rules: Sequence[Rule], gaps: list[NotChecked]) -> list[Finding]:
    found: list[Finding] = []
    # Only some failures leave a snapshot: the last of those.
    snapshot = next((f.snapshot for f in reversed(rank.all(MemoryFailure)) if f.snapshot is not None), None)
    if snapshot is not None:
        with _noting(gaps, "what was alive when memory ran out"):
            found += _of_failure(rank, there(recording, snapshot), [r for r in rules if r.code in EXPLAIN])
    history = rank.last(MemoryHistory)
    if history is not None:
        # Of a failure's layout its own snapshot has spoken.
        codes = {*JUDGE} - {*EXPLAIN} if snapshot is not None else JUDGE
        with _noting(gaps, "the history of device memory (MEM301, MEM303)"):
            found += _of_history(there(recording, history.snapshot), [r for r in rules if r.code in codes])
    return found


@contextmanager
def _noting(gaps: list[NotChecked], check: str) -> Iterator[None]:
    """Add a gap where a snapshot cannot be read."""
    try:
        yield
    except (TorchvetError, OSError) as error:
        gaps.append(NotChecked(check=check, reason=str(error)))


def _of_failure(rank: RankRecording, path: Path, rules: Sequence[Rule]) -> Iterator[Finding]:
    outcome = rank.last(Outcome)
    # A dry run goes on after a failure on purpose: there it is no caught error.
    caught = outcome is not None and outcome.how != "out-of-memory" and rank.last(DrySize) is None
    for finding in _of_history(path, rules):
        yield _told(finding, path, caught)


def _of_history(path: Path, rules: Sequence[Rule]) -> Iterator[Finding]:
    if not rules:
        return
    # A snapshot is a pickle of whoever wrote it: it is read in a process apart, and only where there is one.
    from torchvet.readers.isolated import read_snapshot
    from torchvet.snapshots.memory import SnapshotMemory

    memory = SnapshotMemory(read_snapshot(path), None)
    for rule in rules:
        yield from rule.in_snapshot(memory)


def there(recording: Recording, snapshot: str) -> Path:
    """A file that was left in the recording's folder, which may have been moved since. Raises `BadInput` for one that
    leads out of it."""
    path = Path(snapshot)
    # Only the name counts: the folder that was recorded may be one of another machine.
    return inside(recording.path, recording.path / path.name) if recording.path is not None else path


def _told(finding: Finding, path: Path, caught: bool) -> Finding:
    """With the file that was left; an error that the program caught is no fault."""
    left = Related(role="left beside", message=f"{path} (torchvet inspect)")
    related = [left, *finding.related]
    if not caught:
        return msgspec.structs.replace(finding, related=related)
    message = f"{finding.message}; the program caught the error and went on"
    return msgspec.structs.replace(finding, related=related, severity="info", message=message)
