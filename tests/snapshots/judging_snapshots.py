"""The rules asked about a recorder's snapshot, without a file between."""

from __future__ import annotations

from making_snapshots import Recorder

from torchvet.finding import Finding
from torchvet.readers.conversion import snapshot_of
from torchvet.rules import all_rules
from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory


def judge(recorder: Recorder, limit: int | None = None) -> tuple[DeviceMemory, dict[str, Finding]]:
    """The memory that the rules were asked about, and what they found, by code."""
    memory = SnapshotMemory(snapshot_of(recorder.snapshot(), "planted.pickle", 10**12), limit)
    found = [f for rule in all_rules() for f in rule.in_snapshot(memory)]
    assert len({f.code for f in found}) == len(found), "one finding a rule"
    return memory.devices[0], {f.code: f for f in found}
