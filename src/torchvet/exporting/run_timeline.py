"""A run's steps on a line of time, with how long each phase took and what was allocated."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torchvet.analysis.steps import current_steps
from torchvet.exporting.trace_timeline import FINDINGS, STEPS, Shown
from torchvet.recording.records.base import Window

if TYPE_CHECKING:
    from torchvet.exporting.chrome import Chrome
    from torchvet.recording import RankRecording
    from torchvet.recording.records.base import Step

_SAMPLED = 2
_MICROSECONDS = 1e6


def add_run(chrome: Chrome, rank: RankRecording) -> Shown | None:
    """Add a process for a rank. Several steps that were written down as one are one slice; None where none was seen."""
    steps = current_steps(rank)
    if len(steps) < 2:
        return None
    threads = {STEPS: "steps", _SAMPLED: "sampled steps, slower by that", FINDINGS: "findings"}
    chrome.begin(f"torchvet: rank {rank.rank}", threads)
    for before, step in pairwise(steps):
        _add_step(chrome, before, step)
    ends = {step.n: step.t * _MICROSECONDS for step in steps}
    for window in rank.all(Window):
        if window.first - 1 in ends and window.last in ends:
            chrome.slice(_SAMPLED, "sampled", ends[window.first - 1], ends[window.last])
    return Shown(rank.rank, chrome.process, steps[0].t * _MICROSECONDS, steps[-1].t * _MICROSECONDS, None)


def _add_step(chrome: Chrome, before: Step, step: Step) -> None:
    """From the step before to this one. Phases are counters: their sums are known, their order within a step is not."""
    start, end = before.t * _MICROSECONDS, step.t * _MICROSECONDS
    name = f"{step.kind} {step.n}" if step.count == 1 else f"{step.count} {step.kind} steps to {step.n}"
    chrome.slice(STEPS, name, start, end)
    phases = {name: round(seconds * _MICROSECONDS / step.count) for name, seconds in step.phases.items()}
    if phases:
        chrome.counter("phases, microseconds a step", start, phases)
    memory = {name: value for name in ("allocated", "reserved") if (value := getattr(step, name)) is not None}
    if memory:
        chrome.counter("memory, bytes", end, memory)
