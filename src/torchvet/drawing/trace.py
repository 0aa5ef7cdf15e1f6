"""Profiler traces: how long steps take, where a step goes, what ran in it, and the ranks beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from torchvet.charts import Box, Chart, Mark, Series, guarded, kept, only, thinned
from torchvet.drawing.rank_map import columns_of
from torchvet.formatting import IDLE_WORDS, count, ms, percent
from torchvet.traces.intervals_for_export import stretches_of

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.readers.trace_facts import Gpu, RankTrace, Steps
    from torchvet.traces.intervals_for_export import Stretches
    from torchvet.traces.window import Step

NAMES, STEPS, BOXES = 16, 3, 1_500
"""Kernels drawn, steps of the closer look, and its boxes at most."""
Part = tuple[str, float, str]
"""A name, seconds, a role."""
_Span = tuple[str, float, float, str]


def charts_of_traces(traces: Sequence[RankTrace], report: Report, missing: list[str]) -> list[Chart]:
    """The steps and the parts of each rank; the closer look is at the rank that the report shows, whose file is read
    again for it. `missing` gets those that fail."""
    several = len(traces) > 1
    draws: list[tuple[str, Callable[[], Chart | None]]] = []
    draws += [("what a step did", partial(_parts, trace, several)) for trace in traces]
    draws += [("ranks over time", partial(_rank_map, traces))] if several else []
    shown = next((t for t in traces if several and t.rank == report.facts.get("rank")), traces[0])
    found = guarded("a closer look at steps", partial(stretches_of, Path(shown.path)), missing)
    whose = f", rank {shown.rank}" if several else ""
    if found is not None:
        draws += [("a closer look at steps", partial(_close, found, whose))]
        draws += [("what takes most", partial(_names, found, whose))]
    draws += [("the time of each step", partial(_steps, trace, several)) for trace in traces]
    return [chart for what, draw in draws if (chart := guarded(what, draw, missing)) is not None]


def _steps(trace: RankTrace, several: bool) -> Chart | None:
    steps = trace.steps
    if steps is None or not (steps.known and steps.durations):
        return None
    numbers = steps.numbers or list(range(len(steps.durations)))
    places, width = kept(list(steps.durations))
    drawn = [(float(numbers[p]), steps.durations[p]) for p in places]
    return Chart(
        id="time",
        title="Time of each step",
        kind="lines",
        caption=_spread(steps),
        x_title="step",
        unit="seconds",
        rank=trace.rank if several else None,
        series=_steady_and_apart(drawn, {s.number for s in steps.apart}),
        marks=[Mark(y=steps.median, label=f"median: {ms(steps.median)}", calm=True)],
        notes=thinned(len(steps.durations), len(places), width, "steps"),
        columns=["step", "seconds"],
        rows=[[f"{n:,.0f}", ms(v)] for n, v in drawn],
    )


def _steady_and_apart(drawn: list[tuple[float, float]], apart: set[int]) -> list[Series]:
    x = [n for n, _ in drawn]
    steady: list[float | None] = [v if n not in apart else None for n, v in drawn]
    others: list[float | None] = [v if n in apart else None for n, v in drawn]
    found = [Series(name="steady", role="forward", x=x, y=steady, style="bar")]
    return found + ([Series(name="set apart", role="other", x=x, y=others, style="bar")] if any(others) else [])


def _spread(steps: Steps) -> str:
    told = f"The median of {count(steps.count, 'steady step')} is {ms(steps.median)}, "
    told += f"from {ms(steps.low)} to {ms(steps.high)}."
    why = "; ".join(f"step {s.number} is set apart ({s.why}, {ms(s.seconds)})" for s in steps.apart[:4])
    return told + (f" {why[:1].upper()}{why[1:]}." if why else "")


def _parts(trace: RankTrace, several: bool) -> Chart | None:
    """What the device did and what it waited for, and the host's phases."""
    steps = trace.steps
    rows = [row for row in (*_of_device(trace.gpu), *_of_host(trace)) if row[1] > 0]
    if steps is None or not (steps.seconds and rows):
        return None
    per = "a step" if steps.known else "the whole trace"
    return Chart(
        id="device",
        title="Where a step goes" if steps.known else "Where the time goes",
        kind="bars",
        caption=_largest(rows, trace.gpu, steps.seconds, per),
        x_title=per,
        unit="seconds",
        rank=trace.rank if several else None,
        labels=[name for name, _, _ in rows],
        series=[
            Series(name=role, role=role, x=[], y=[s if r == role else None for _, s, r in rows], style="bar")
            for role in dict.fromkeys(role for _, _, role in rows)
        ],
        columns=["part", per, "share"],
        rows=[[name, ms(s), percent(s / steps.seconds)] for name, s, _ in rows],
    )


def _of_device(gpu: Gpu | None) -> list[Part]:
    if gpu is None:
        return []
    busy = [("computing", gpu.compute, "compute"), ("communication only", gpu.communication, "communication")]
    idle = sorted(gpu.idle.items(), key=lambda i: -i[1])
    return [*busy, ("copies only", gpu.copies, "copies"), *((f"idle: {_why(w)}", s, "idle") for w, s in idle)]


def _of_host(trace: RankTrace) -> list[Part]:
    return [(f"host: {name}", s, name) for name, s in sorted(trace.phases.items(), key=lambda p: -p[1])]


def _why(reason: str) -> str:
    return IDLE_WORDS.get(reason, reason)


def _largest(rows: list[Part], gpu: Gpu | None, whole: float, per: str) -> str:
    name, most, _ = max(rows, key=lambda row: row[1])
    told = f"{per[:1].upper()}{per[1:]} takes {ms(whole)}; "
    told += f"the largest part is {name}: {ms(most)}, {percent(most / whole)}."
    return told + (f" Device {gpu.device} is busy for {percent(gpu.busy_share)} of it." if gpu is not None else "")


def _close(found: Stretches, whose: str) -> Chart | None:
    """Phases of the host and the device's idle time in a few steps in the middle of the trace."""
    steady = found.window.steady
    middle = max(0, len(steady) // 2 - 1)
    steps = steady[middle : middle + STEPS]
    rows = _spans(found)
    boxes = _boxes([spans for _, spans in rows], steps[0].start, steps[-1].end) if steps else []
    if not boxes:
        return None
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for box in boxes:
        sums[rows[box.row][0], f"{box.role}: {box.note}".removesuffix(": ")] += box.size
    many = f"the {BOXES:,} longest of {count(len(boxes), 'stretch', 'stretches')} are drawn"
    return Chart(
        id="step",
        title=_look(found, steps) + whose,
        kind="blocks",
        caption=_looked_at(found, steps),
        x_title="time",
        unit="seconds",
        labels=[name for name, _ in rows],
        boxes=sorted(boxes, key=lambda b: -b.size)[:BOXES],
        ticks=[(s.start - steps[0].start) / 1e6 for s in steps[1:]],
        notes=only(len(boxes) > BOXES, many),
        columns=["of", "what", "seconds"],
        rows=[[of, what, ms(s)] for (of, what), s in sorted(sums.items(), key=lambda one: -one[1])],
    )


def _spans(found: Stretches) -> list[tuple[str, list[_Span]]]:
    """What the host and the device were at, and when: what it is, from, to, and a word on why."""
    painted = zip(found.painted.names, found.painted.starts, found.painted.ends, strict=True)
    rows: list[tuple[str, list[_Span]]] = [("phases of the host", [(name, a, b, "") for name, a, b in painted])]
    if found.device:
        busy: list[_Span] = [("compute", a, b, "") for a, b in found.busy]
        doubt = "" if found.trusted else "the clocks disagree"
        rows.append((found.device, busy + [("idle", g.start, g.end, doubt or _why(g.reason)) for g in found.gaps]))
    return rows


def _boxes(rows: list[list[_Span]], start: float, end: float) -> list[Box]:
    """The parts of spans that lie between two times, in seconds from the first."""
    found = []
    for row, spans in enumerate(rows):
        for role, a, b, note in spans:
            first, last = max(a, start), min(b, end)
            if last > first:
                size = (last - first) / 1e6
                found.append(Box(row=row, start=(first - start) / 1e6, size=size, role=role, note=note))
    return found


def _look(found: Stretches, steps: Sequence[Step]) -> str:
    if not found.window.known:
        return "The trace over time"
    first, last = steps[0].number, steps[-1].number
    return f"A closer look at step {first}" if first == last else f"A closer look at steps {first} to {last}"


def _looked_at(found: Stretches, steps: Sequence[Step]) -> str:
    who = "the host and the device were" if found.device else "the host was"
    what = f"{count(len(steps), 'step')} in the middle of the trace" if found.window.known else "The whole trace"
    return f"{what}, {ms((steps[-1].end - steps[0].start) / 1e6)}, by what {who} at."


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
    known = [(t, t.steps.durations) for t in traces if t.steps is not None and t.steps.known]
    known = [(trace, durations) for trace, durations in known if durations]
    if len(known) < 2:
        return None
    x, grid, notes = columns_of([list(enumerate(durations)) for _, durations in known])
    means = [(median(durations), trace.rank) for trace, durations in known]
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
        labels=[f"rank {t.rank}" if t.rank is not None else Path(t.path).name for t, _ in known],
        x=x,
        grid=grid,
        notes=notes,
        columns=["rank", "median step"],
        rows=[[str(rank), ms(value)] for value, rank in means],
    )
