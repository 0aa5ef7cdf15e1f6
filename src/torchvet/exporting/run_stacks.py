"""Seconds of a run's step by the lines that they went to, as the clock of lines saw them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.analysis.line_times import Files, timing_of
from torchvet.exporting.stacks import Profile, Stack, StackFrame
from torchvet.recording.records.timing import WorkerTimes

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Place
    from torchvet.recording.records.timing import LineTime


_CODE = 60
"""Characters of a line's text in its name."""


def profiles_of(recording: Recording) -> Iterator[Profile]:
    """Up to two profiles a rank: a step, and what the loader's workers did beside it."""
    for rank in recording.ranks:
        timing = timing_of(rank)
        if timing is None:
            continue
        whose = f"rank {rank.rank}: " if len(recording.ranks) > 1 else ""
        times = timing.times
        weights = [(stack_of(line, timing.files), timing.per_step(line.seconds)) for line in times.lines]
        rest = [((StackFrame("other lines"),), timing.per_step(times.rest))] if times.rest > 0 else []
        yield Profile(f"{whose}a step by line (mean of {times.steps})", "seconds", [*weights, *rest])
        yield from _workers(rank, timing.files, whose)


def stack_of(line: LineTime, files: Files) -> Stack:
    """Phase, the lines that called it, the line itself, and the function that it called."""
    phase = f"{line.phase}: {line.stage}" if line.stage else line.phase
    below = (StackFrame(line.calls),) if line.calls else ()
    return (StackFrame(phase), *(_frame(p, files) for p in (*reversed(line.callers), line.place)), *below)


def _frame(place: Place, files: Files) -> StackFrame:
    text = files.text(place.path, place.line)
    code = f"  {text if len(text) <= _CODE else text[: _CODE - 3] + '...'}" if text else ""
    return StackFrame(f"{place.function} {Path(place.path).name}:{place.line}{code}", place.path, place.line)


def _workers(rank: RankRecording, files: Files, whose: str) -> Iterator[Profile]:
    found = rank.last(WorkerTimes)
    if found is None or not found.lines:
        return
    weights = [(stack_of(line, files), line.seconds) for line in found.lines]
    name = f"{whose}{found.workers} loader workers, the whole run (busy {found.busy:.1f} of {found.seconds:.1f} s)"
    yield Profile(name, "seconds", weights)
