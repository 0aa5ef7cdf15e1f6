"""What an export of given snapshots or digests holds, without files or a command between."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from making_snapshots import Recorder

from torchvet.exporting.forms import form_of
from torchvet.finding import Finding, Report
from torchvet.readers.conversion import snapshot_of
from torchvet.readers.isolated import read_snapshot
from torchvet.readers.trace_facts import RankTrace
from torchvet.snapshots.memory import SnapshotMemory

DATA = Path(__file__).resolve().parents[1] / "data"
REAL = [DATA / "magma.pickle", DATA / "silmont.pickle"]


def memory_of(recorder: Recorder) -> SnapshotMemory:
    """What a recorder recorded, with the times of its events."""
    return SnapshotMemory(snapshot_of(recorder.snapshot(), "planted.pickle", 10**12, times=True))


def real(path: Path) -> SnapshotMemory:
    """A real snapshot, with the times of its events."""
    return SnapshotMemory(read_snapshot(path, times=True))


def export(ending: str, *given: SnapshotMemory | RankTrace, findings: list[Finding] | None = None) -> str:
    """The text of an export."""
    stream = io.StringIO(newline="")
    form = form_of(ending, stream)
    for rank, one in enumerate(given):
        if isinstance(one, RankTrace):
            form.trace(one)
        else:
            form.snapshot(rank, one)
    form.finish(Report(subject={}, verdict="clean", findings=findings or []))
    return stream.getvalue()


def speedscope(*given: SnapshotMemory | RankTrace) -> dict[str, Any]:
    """A speedscope file, held against what its schema and its importer demand."""
    found: dict[str, Any] = json.loads(export(".speedscope.json", *given))
    assert found["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(found) == {"$schema", "version", "exporter", "name", "profiles", "shared"}
    assert set(found["shared"]) == {"frames"} and found["profiles"]
    frames = found["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line"} and frame["name"] and type(frame.get("line", 1)) is int
    for profile in found["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled" and profile["unit"] in ("bytes", "seconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)
        assert all(weight > 0 for weight in profile["weights"])
        assert profile["startValue"] == 0 and profile["endValue"] == sum(profile["weights"])
    return found


def chrome(*given: SnapshotMemory | RankTrace, findings: list[Finding] | None = None) -> dict[str, Any]:
    """A file of trace events, held against the format's demands on each kind."""
    found: dict[str, Any] = json.loads(export(".perfetto.json", *given, findings=findings))
    assert set(found) <= {"displayTimeUnit", "traceEvents", "otherData", "baseTimeNanoseconds"}
    for event in found["traceEvents"]:
        assert event["ph"] in ("X", "C", "i", "M") and type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["ts"], (int, float)) and isinstance(event["name"], str)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert event["args"] and all(type(value) is int for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    return found


def events(found: dict[str, Any], kind: str, name: str = "", thread: int | None = None) -> list[dict[str, Any]]:
    """The events of a kind whose name begins so."""
    chosen = [e for e in found["traceEvents"] if e["ph"] == kind and e["name"].startswith(name)]
    return [e for e in chosen if thread is None or e["tid"] == thread]


def rows(ending: str, *given: SnapshotMemory | RankTrace) -> list[dict[str, Any]]:
    """The rows of a table; those of CSV have text only. Each is one line."""
    text = export(ending, *given)
    if ending == ".csv":
        found: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        assert len(text.splitlines()) == len(found) + 1
    else:
        found = [json.loads(line) for line in text.splitlines()]
        assert text.isascii()
    return found
