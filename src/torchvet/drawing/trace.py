"""Profiler traces: how long steps take, where a step goes, what ran in it, and the ranks beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from torchvet.charts import Box, Chart, Mark, Series, kept, thinned
from torchvet.drawing.rank_map import COLUMNS
from torchvet.formatting import IDLE_WORDS, count, ms, percent
from torchvet.traces.intervals_for_export import stretches_of

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.traces.intervals_for_export import Stretches

NAMES, STEPS, BOXES = 16, 3, 1_500
"""Kernels drawn, steps of the closer look, and its boxes at most."""


def charts_of_traces(traces: Sequence[RankTrace], report: Report) -> list[Chart]:
    """The steps and the parts of each rank; the closer look is at the rank that the report shows, whose file is read
    again for it."""
    several = len(traces) > 1
    steps = [chart for trace in traces if (chart := _steps(trace, several)) is not None]
    parts = [chart for trace in traces if (chart := _parts(trace, several)) is not None]
    shown = next((t for t in traces if several and t.rank == report.facts.get("rank")), traces[0])
    found = stretches_of(Path(shown.path))
    whose = f", rank {shown.rank}" if several else ""
    close = [_close(found, whose), _names(found, whose)] if found is not None else []
    ranks = _rank_map(traces) if several else None
    return [*parts, *([ranks] if ranks is not None else []), *(c for c in close if c is not None), *steps]


def _steps(trace: RankTrace, several: bool) -> Chart | None:
    steps = trace.steps
    if steps is None or not steps.known or not steps.durations:
        return None
    numbers = steps.numbers or list(range(len(steps.durations)))
    apart = {s.number for s in steps.apart}
    places, width = kept(list(steps.durations))
    drawn = [(float(numbers[p]), steps.durations[p]) for p in places]
    steady = [float(v) if n not in apart else None for n, v in drawn]
    others = [float(v) if n in apart else None for n, v in drawn]
    x = [n for n, _ in drawn]
    series = [Series(name="steady", role="forward", x=x, y=steady, style="bar")]
    series += [Series(name="set apart", role="other", x=x, y=others, style="bar")] if any(others) else []
    told = f"The median of {count(steps.count, 'steady step')} is {ms(steps.median)}, "
    told += f"from {ms(steps.low)} to {ms(steps.high)}."
    why = "; ".join(f"step {s.number} is set apart ({s.why}, {ms(s.seconds)})" for s in steps.apart[:4])
    told += f" {why[:1].upper()}{why[1:]}." if why else ""
    return Chart(
        id="time",
        title="Time of each step",
        kind="lines",
        caption=told,
        x_title="step",
        unit="seconds",
        rank=trace.rank if several else None,
        series=series,
        marks=[Mark(y=steps.median, label=f"median: {ms(steps.median)}", calm=True)],
        notes=thinned(len(steps.durations), len(places), width, "steps"),
        columns=["step", "seconds"],
        rows=[[f"{n:,.0f}", ms(v)] for n, v in drawn],
    )


def _parts(trace: RankTrace, several: bool) -> Chart | None:
    """What the device did and what it waited for; where there is none the host's phases."""
    if trace.steps is None or not trace.steps.seconds:
        return None
    whole, gpu = trace.steps.seconds, trace.gpu
    rows: list[tuple[str, float, str]] = []
    if gpu is not None:
        named = (("computing", gpu.compute, "compute"), ("communication only", gpu.communication, "communication"))
        rows = [*named, ("copies only", gpu.copies, "copies")]
        rows += [
            (f"idle: {IDLE_WORDS.get(why, why)}", s, "idle") for why, s in sorted(gpu.idle.items(), key=lambda i: -i[1])
        ]
    hosts = [(f"host: {name}", s, name) for name, s in sorted(trace.phases.items(), key=lambda p: -p[1])]
    rows = [row for row in [*rows, *hosts] if row[1] > 0]
    if not rows:
        return None
    labels = [name for name, _, _ in rows]
    roles = list(dict.fromkeys(role for _, _, role in rows))
    series = [
        Series(name=role, role=role, x=[], y=[s if r == role else None for _, s, r in rows], style="bar")
        for role in roles
    ]
    what = f"device {gpu.device} and the host" if gpu is not None else "the host"
    known = "A step" if trace.steps.known else "The trace"
    first = max(rows, key=lambda row: row[1])
    told = f"{known} takes {ms(whole)}; the largest part of {what} is {first[0]}: {ms(first[1])}, "
    told += f"{percent(first[1] / whole)}." + (
        f" The device is busy for {percent(gpu.busy_share)} of it." if gpu else ""
    )
    return Chart(
        id="device",
        title="Where a step goes" if trace.steps.known else "Where the time goes",
        kind="bars",
        caption=told,
        x_title="a step" if trace.steps.known else "the whole trace",
        unit="seconds",
        rank=trace.rank if several else None,
        labels=labels,
        series=series,
        columns=["part", "a step", "share"],
        rows=[[name, ms(s), percent(s / whole)] for name, s, _ in rows],
    )


def _close(found: Stretches, whose: str) -> Chart | None:
    """Phases of the host and the device's idle time in a few steps in the middle of the trace."""
    steady = found.window.steady
    if not steady:
        return None
    middle = max(0, len(steady) // 2 - 1)
    steps = steady[middle : middle + STEPS]
    start, end = steps[0].start, steps[-1].end
    painted = zip(found.painted.names, found.painted.starts, found.painted.ends, strict=True)
    rows = [("phases of the host", [(n, a, b, "") for n, a, b in painted])]
    if found.device:
        reasons = [
            ("idle", g.start, g.end, IDLE_WORDS.get(g.reason, g.reason) if found.trusted else "the clocks disagree")
            for g in found.gaps
        ]
        rows.append((found.device, [("compute", a, b, "") for a, b in found.busy] + reasons))
    boxes = [
        Box(
            row=row, start=(max(a, start) - start) / 1e6, size=(min(b, end) - max(a, start)) / 1e6, role=role, note=note
        )
        for row, (_, spans) in enumerate(rows)
        for role, a, b, note in spans
        if b > start and a < end
    ]
    if not boxes:
        return None
    drawn = sorted(boxes, key=lambda b: -b.size)[:BOXES]
    numbers = f"{steps[0].number}" if len(steps) == 1 else f"{steps[0].number} to {steps[-1].number}"
    known = found.window.known
    who = "the host and the device were" if found.device else "the host was"
    told = f"{count(len(steps), 'step')} in the middle of the trace" if known else "The whole trace"
    told += f", {ms((end - start) / 1e6)}, by what {who} at."
    look = f"A closer look at {'step' if len(steps) == 1 else 'steps'} {numbers}" if known else "The trace over time"
    sums: dict[tuple[str, str], float] = {}
    for box in boxes:
        key = rows[box.row][0], f"{box.role}: {box.note}" if box.note else box.role
        sums[key] = sums.get(key, 0.0) + box.size
    return Chart(
        id="step",
        title=look + whose,
        kind="blocks",
        caption=told,
        x_title="time",
        unit="seconds",
        labels=[name for name, _ in rows],
        boxes=drawn,
        ticks=[(s.start - start) / 1e6 for s in steps[1:]],
        notes=[f"the {BOXES:,} longest of {count(len(boxes), 'stretch', 'stretches')} are drawn"]
        if len(boxes) > BOXES
        else [],
        columns=["of", "what", "seconds"],
        rows=[[of, what, ms(s)] for (of, what), s in sorted(sums.items(), key=lambda one: -one[1])],
    )


def _names(found: Stretches, whose: str) -> Chart | None:
    rows = found.spent[:NAMES]
    if not rows:
        return None
    what = "kernel" if found.device else "operator"
    whole = sum(s for _, s, _ in found.spent)
    per = "a step" if found.window.known else "the whole trace"
    name, most, times = rows[0]
    told = f"{name} takes most: {ms(most)} {per}, {percent(most / whole) if whole else '0 %'} of all {what}s, "
    told += f"{count(times, 'time')}."
    return Chart(
        id="kernels",
        title=f"{what.capitalize()}s that take most{whose}",
        kind="bars",
        caption=told,
        x_title=per,
        unit="seconds",
        labels=[name for name, _, _ in rows],
        series=[Series(name=what, role="compute", x=[], y=[s for _, s, _ in rows], style="bar")],
        notes=[f"the {NAMES} of {len(found.spent):,} {what}s that take most are drawn"]
        if len(found.spent) > NAMES
        else [],
        columns=[what, "seconds", "times", "share"],
        rows=[[name, ms(s), count(n), percent(s / whole) if whole else ""] for name, s, n in found.spent],
    )


def _rank_map(traces: Sequence[RankTrace]) -> Chart | None:
    known = [t for t in traces if t.steps is not None and t.steps.known and t.steps.durations]
    if len(known) < 2:
        return None
    most = max(len(t.steps.durations) for t in known if t.steps is not None)
    width = -(-most // COLUMNS)
    columns = range(0, most, width)
    rows = [t.steps.durations if t.steps is not None else [] for t in known]
    grid: list[list[float | None]] = [
        [sum(part) / len(part) if (part := row[at : at + width]) else None for at in columns] for row in rows
    ]
    means = [(median(row), t.rank) for row, t in zip(rows, known, strict=True)]
    (longest, slow), (shortest, quick) = max(means, key=lambda m: m[0]), min(means, key=lambda m: m[0])
    told = f"Median step by rank: the longest is rank {slow}'s with {ms(longest)}, "
    told += f"the shortest rank {quick}'s with {ms(shortest)}."
    return Chart(
        id="ranks",
        title="Ranks over time: a step",
        kind="heat",
        caption=told,
        x_title="step",
        unit="seconds",
        labels=[f"rank {t.rank}" if t.rank is not None else Path(t.path).name for t in known],
        x=[float(at) for at in columns],
        grid=grid,
        notes=[f"{most:,} steps shown as {len(columns):,} columns (the mean of each {width:,})"] if width > 1 else [],
        columns=["rank", "median step"],
        rows=[[str(rank), ms(value)] for value, rank in means],
    )
