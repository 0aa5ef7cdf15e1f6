"""The time of steps as facts: how long they take, how that spreads and drifts, and which statements take it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torchvet.analysis.host_work import HostWork
from torchvet.analysis.line_times import operators_of, timing_of
from torchvet.analysis.steps import current_steps
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Step, Window
from torchvet.recording.records.memory import ObjectLines
from torchvet.recording.records.timing import StepSamples

_SHOWN = 12
_FIRST = 3
"""Steps that are told apart: they import, compile and fill caches."""
_ENOUGH = 12

Timed = tuple[float, int]
"""Seconds of a step, and how many steps took them on the average."""


def time_facts(rank: RankRecording) -> dict[str, Any]:
    """What is known of a step's time; without the clock of lines only how it spreads."""
    facts: dict[str, Any] = _spread(rank)
    timing = timing_of(rank)
    if timing is None:
        return {"time": facts} if facts else {}
    times, work = timing.times, HostWork(timing, operators_of(rank)[1])
    facts |= {"seconds_watched": times.seconds, "steps_watched": times.steps, "looks": times.looks}
    facts["seconds_per_step"] = timing.step
    facts["lines"] = [
        {
            "path": one.path,
            "line": one.line,
            "function": one.function,
            "code": one.text,
            "seconds_per_step": timing.per_step(one.seconds),
            "share": timing.share(one.seconds),
            "phase": one.by("phase"),
            "work": next((kind for part in one.parts if (kind := work.kind(part))), None),
        }
        for one in timing.statements()[:_SHOWN]
    ]
    return {"time": facts}


def step_times(rank: RankRecording) -> tuple[list[float], list[Timed]]:
    """Seconds of the first steps, and those of the others that were not sampled, in their order."""
    # In these torchvet itself was at work.
    slowed = [(w.first, w.last) for w in rank.all(Window)] + [(o.first, o.last) for o in rank.all(ObjectLines)]
    first: list[float] = []
    others: list[Timed] = []
    lines = _by_time(current_steps(rank))
    for (before, _), (after, count) in pairwise(lines):
        seconds = (after.t - before.t) / count
        # A step runs from the record before it: its own number may be higher where several share a line.
        if before.n < _FIRST:
            first.append(seconds)
        elif not any(low <= after.n and before.n < high for low, high in slowed):
            others.append((seconds, count))
    return first, others


def _by_time(steps: list[Step]) -> list[tuple[Step, int]]:
    """Steps of several kinds that share a line are one, counted together; evaluation passes are parts of steps."""
    found: list[tuple[Step, int]] = []
    for step in steps:
        # Of no count: its seconds go to the step in which it lies.
        count = 0 if step.kind == "evaluation" else step.count
        if found and (found[-1][0].n == step.n or not count):
            found[-1] = found[-1][0], found[-1][1] + count
        elif count:
            found.append((step, count))
    return found


def _spread(rank: RankRecording) -> dict[str, Any]:
    first, others = step_times(rank)
    facts: dict[str, Any] = {"first_steps": first} if first else {}
    if sum(count for _, count in others) < _ENOUGH:
        return facts
    third = len(others) // 3
    facts |= {"median": _quantile(others, 0.5), "p90": _quantile(others, 0.9)}
    samples = rank.last(StepSamples)
    if samples is not None and facts["median"]:
        facts |= {"samples_per_step": samples.samples, "samples_per_second": samples.samples / facts["median"]}
    if third:
        start, end = _quantile(others[:third], 0.5), _quantile(others[-third:], 0.5)
        facts["drift"] = end / start if start else None
    return facts


def _quantile(times: list[Timed], share: float) -> float:
    """The time below which a share of the steps lies."""
    ordered = sorted(times)
    left = share * sum(count for _, count in ordered)
    for seconds, count in ordered:
        left -= count
        if left <= 0:
            return seconds
    return ordered[-1][0]
