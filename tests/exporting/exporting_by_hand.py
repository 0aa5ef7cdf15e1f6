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
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Record, Source, Step, Window
from torchvet.recording.records.timing import LineTime, LineTimes, WorkerTimes
from torchvet.snapshots.memory import SnapshotMemory

DATA = Path(__file__).resolve().parents[1] / "data"
REAL = [DATA / "magma.pickle", DATA / "silmont.pickle"]


def memory_of(recorder: Recorder) -> SnapshotMemory:
    """What a recorder recorded, with the times of its events."""
    return SnapshotMemory(snapshot_of(recorder.snapshot(), "planted.pickle", 10**12, times=True))


def real(path: Path) -> SnapshotMemory:
    """A real snapshot, with the times of its events."""
    return SnapshotMemory(read_snapshot(path, times=True))


RUN = "/home/user/train.py"
RUN_TEXT = """def train():
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
        log(x)
train()
"""


def run(more: list[LineTime] | None = None, ranks: int = 1, **program: Any) -> Recording:
    """A run of 40 steps of 10 ms that were watched: 6 ms in the backward pass, 3 ms in the optimizer, 1 ms in a log."""
    called = Place(RUN, 6, "<module>")
    lines = [
        LineTime(place=Place(RUN, 3, "train"), seconds=0.24, looks=40, steps=40, phase="backward", callers=[called]),
        LineTime(place=Place(RUN, 4, "train"), seconds=0.12, looks=30, steps=25, phase="optimizer", callers=[called]),
        LineTime(place=Place(RUN, 5, "train"), seconds=0.03, looks=9, steps=9, calls="log", callers=[called]),
        *(more or []),
    ]
    times = LineTimes(seconds=0.4, steps=40, looks=80, interval=0.005, own=0.0, rest=0.01, lines=lines)
    made = LineTime(place=Place(RUN, 2, "train"), seconds=3.0, looks=60, steps=0, phase="data", stage="item")
    workers = WorkerTimes(workers=2, seconds=4.0, busy=3.0, lines=[made])
    facts = {"cwd": "", "python": "3.11", "torch": "2.13.0", "device": "cpu", "started": 0.0, "pid": 1, **program}
    records: list[Record] = [Program(argv=[], path=RUN, **facts), Source(path=RUN, text=RUN_TEXT), times, workers]
    phases = {"backward": 0.006, "optimizer": 0.003, "other": 0.001}
    records += [Step(n=n, kind="training", t=n * 0.01, phases=phases, allocated=1000 * n) for n in range(1, 20)]
    records += [Step(n=41, kind="training", t=0.41, count=22, phases={k: 22 * v for k, v in phases.items()})]
    records.append(Window(id=1, first=5, last=6, kind="training", born=0, peak=0))
    return Recording([RankRecording(rank, records) for rank in range(ranks)])


def export(ending: str, *given: SnapshotMemory | RankTrace | Recording, findings: list[Finding] | None = None) -> str:
    """The text of an export."""
    stream = io.StringIO(newline="")
    form = form_of(ending, stream)
    for rank, one in enumerate(given):
        if isinstance(one, RankTrace):
            form.trace(one)
        elif isinstance(one, Recording):
            form.recording(one)
        else:
            form.snapshot(rank, one)
    form.finish(Report(subject={}, verdict="clean", findings=findings or []))
    return stream.getvalue()


def speedscope(*given: SnapshotMemory | RankTrace | Recording) -> dict[str, Any]:
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


def chrome(*given: SnapshotMemory | RankTrace | Recording, findings: list[Finding] | None = None) -> dict[str, Any]:
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


def rows(ending: str, *given: SnapshotMemory | RankTrace | Recording) -> list[dict[str, Any]]:
    """The rows of a table; those of CSV have text only. Each is one line."""
    text = export(ending, *given)
    if ending == ".csv":
        found: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        assert len(text.splitlines()) == len(found) + 1
    else:
        found = [json.loads(line) for line in text.splitlines()]
        assert text.isascii()
    return found
