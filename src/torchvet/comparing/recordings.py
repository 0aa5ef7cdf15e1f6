"""What of a recording is compared: what was found, the peak, what grows, and where the time goes."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence

from torchvet.analysis import growth_of
from torchvet.analysis.steps import current_steps
from torchvet.comparing.tables import Side, Table, floats
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Window


def side_of_recording(recording: Recording, findings: Sequence[Finding] = ()) -> Side:
    """The tables of a recording with these findings; of several ranks, of the one with the highest peak."""
    rank = max(recording.ranks, key=_peak, default=RankRecording(0, []))
    tables = [_findings(recording, rank, findings), *_peak_tables(recording, rank), _growth(rank), _seconds(rank)]
    return Side(kind="recording", path=str(recording.path or ""), tables=[t for t in tables if t is not None])


def _findings(recording: Recording, rank: RankRecording, findings: Sequence[Finding]) -> Table:
    """What was found at warning or above, each by its code and what holds the memory, or else by its line."""
    rows: Counter[str] = Counter()
    for finding in findings:
        if finding.severity != "info":
            at = finding.location
            place = Place(at.path, at.line, at.function or "") if at is not None else None
            where = finding.holder.name if finding.holder is not None else line_name(recording, rank, place)
            rows[f"{finding.code} {where}"] += 1
    return Table(title="findings", unit="findings", rows=floats(rows), total=rows.total())


def _peak(rank: RankRecording) -> int:
    return max((w.peak for w in rank.all(Window)), default=0)


def _peak_tables(recording: Recording, rank: RankRecording) -> list[Table]:
    """The highest sampled peak by category, and by the lines whose storages it was made of."""
    windows = rank.all(Window)
    if not windows:
        return []
    highest = max(windows, key=lambda w: w.peak)
    lines: Counter[str] = Counter()
    for row in highest.sites:
        lines[line_name(recording, rank, row.site.place or row.site.inner)] += row.bytes
    return [
        Table(title="peak by category", unit="bytes", total=highest.peak, gates=True, rows=floats(highest.categories)),
        Table(title="peak by line (the largest)", unit="bytes", rows=floats(lines)),
    ]


def _growth(rank: RankRecording) -> Table:
    """What each name keeps alive per step, of all that was seen to live on."""
    summary = growth_of(rank)
    rows: dict[str, float] = defaultdict(float)
    for growth in summary.growths:
        rows[growth.holding.name] += growth.bytes_per_step
    if summary.unexplained:
        rows["without a name"] = summary.unexplained
    total = max(summary.measured, sum(rows.values()))
    return Table(title="growth by name", unit="bytes per step", rows=dict(rows), gates=True, total=total)


def _seconds(rank: RankRecording) -> Table | None:
    """Seconds by phase, over the steps of the kind that is counted."""
    steps = current_steps(rank)
    counts = Counter[str]()
    phases: dict[str, float] = defaultdict(float)
    for step in steps:
        counts[step.kind] += step.count
        for name, seconds in step.phases.items():
            phases["forward and other" if name == "other" else name] += seconds
    kind = next((k for k in ("manual", "training", "backward", "evaluation", "forward") if counts[k]), None)
    if kind is None or not phases:
        return None
    rows = {name: seconds / counts[kind] for name, seconds in phases.items()}
    return Table(title="time by phase", unit="seconds per step", rows=rows, total=sum(rows.values()))


def _shown(path: str, rank: RankRecording) -> str:
    """A path as seen from the program's folder or the working directory: two checkouts have the same names."""
    program = rank.program
    for folder in (os.path.dirname(program.path), program.cwd) if program is not None else ():
        if folder and path.startswith(os.path.join(folder, "")):
            return path[len(os.path.join(folder, "")) :]
    return path


def line_name(recording: Recording, rank: RankRecording, place: Place | None) -> str:
    """A line by file, function and text, so that it is the same one where lines were put in above it."""
    if place is None:
        return "no line known"
    path = _shown(place.path, rank)
    text = recording.source_line(place)
    return f"{path} in {place.function}: {text}" if text else f"{path}:{place.line} in {place.function}"
