"""Rows of a run's tables: the lines that its steps' time went to, and its steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torchvet.analysis.line_times import timing_of
from torchvet.analysis.steps import current_steps
from torchvet.exporting.plain import number, plain
from torchvet.exporting.run_stacks import stack_of
from torchvet.formatting import picked
from torchvet.readers.trace_facts import PHASES

if TYPE_CHECKING:
    from torchvet.recording import Recording

LINES = (
    "rank",
    "path",
    "line",
    "function",
    "code",
    "phase",
    "stage",
    "calls",
    "seconds_per_step",
    "share",
    "looks",
    "steps",
    "stack",
)
"""A row a line and the way that led to it, in steps that were not sampled. `steps` is in how many it was seen, `stack`
is `a;b;c`, outermost first."""


def line_rows(recording: Recording) -> Iterator[dict[str, Any]]:
    """One row a line as it was reached, those that took most first, with the columns of `LINES`."""
    for rank in recording.ranks:
        timing = timing_of(rank)
        if timing is None:
            continue
        for line in timing.times.lines:
            row = {"rank": rank.rank, **picked(line.place, "path", "line", "function")}
            row["code"] = timing.files.text(line.place.path, line.place.line) or None
            row |= {"phase": line.phase, "stage": line.stage or None, "calls": line.calls or None}
            row |= {"seconds_per_step": number(timing.per_step(line.seconds)), "share": timing.share(line.seconds)}
            row |= picked(line, "looks", "steps")
            yield row | {
                "stack": plain(";".join(frame.name.replace(";", ",") for frame in stack_of(line, timing.files)))
            }


def run_step_rows(recording: Recording) -> Iterator[dict[str, Any]]:
    """One row for each record of steps: `count` steps up to `step`, and their seconds by phase."""
    for rank in recording.ranks:
        for before, step in pairwise(current_steps(rank)):
            row = {"rank": rank.rank, **picked(step, "kind", "count"), "step": step.n}
            row["seconds"] = number(step.t - before.t)
            for phase in PHASES:
                row[f"{phase}_seconds"] = number(step.phases.get(phase, 0.0)) if step.phases else None
            yield row | picked(step, "allocated", "reserved")
