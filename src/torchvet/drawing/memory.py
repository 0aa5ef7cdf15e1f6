"""A run's memory over its steps, and the peaks of its sampled steps by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchvet.analysis.growth_series import beside_known
from torchvet.analysis.memory_limit import limit_of
from torchvet.analysis.memory_series import device_sizes, heap_sizes, resident_sizes
from torchvet.analysis.steps import current_steps
from torchvet.charts import Chart, Mark, Series, Span, View, kept, thinned
from torchvet.drawing.holders import gaining, searches
from torchvet.formatting import count, limit, size
from torchvet.recording.records.base import Window
from torchvet.recording.records.training import MemoryFailure, Outcome

if TYPE_CHECKING:
    from torchvet.analysis.trend import Sizes
    from torchvet.finding import Report
    from torchvet.recording import RankRecording
    from torchvet.recording.records.base import Census, Holding

NAMES = 4
"""Names that have an area of their own."""
STEP = "step boundary"
_THIN = 8
"""The part of the chart's height (an eighth) below which tensors have a view of their own."""
_NEAR = 1.5
"""Times the highest value within which the limit is drawn: further away it would press all else to the ground."""


def memory_chart(rank: RankRecording, report: Report) -> Chart | None:
    """What lives on from step to step by category and name, at each search for names, and what the system counted."""
    searched = searches(rank)
    lines = [_line(*one) for one in _counted(rank) if len(one[1]) > 1]
    notes = [note for _, found in lines for note in found]
    areas = _areas(searched, gaining(rank)[:NAMES])
    series = [*areas, *(one for one, _ in lines)]
    if not series:
        return None
    highest = _highest(series)
    return Chart(
        id="memory",
        title="Memory over the steps",
        kind="lines",
        caption=_told(rank, searched, [(name, sizes) for name, sizes, _ in _counted(rank)]),
        x_title=STEP,
        unit="bytes",
        rank=rank.rank,
        series=series,
        marks=[*_failures(rank), *findings_at(report, rank), *_limit(rank, highest)],
        views=_views(searched, series, highest),
        spans=sampled(rank),
        notes=[*notes, *_sampled_note(rank), *_areas_note(searched)],
        columns=["step", *(s.name for s in areas)],
        rows=[[f"{c.tick:,}", *(size(s.y[at] or 0) for s in areas)] for at, c in enumerate(searched)],
    )


def _highest(series: list[Series]) -> float:
    return max((y for s in series for y in s.y if y is not None), default=0.0)


def sampled(rank: RankRecording) -> list[Span]:
    """The steps in which every new storage was noted."""
    return [Span(label="sampled steps", start=w.first - 0.5, end=w.last + 0.5) for w in _windows(rank)]


def _views(searched: list[Census], series: list[Series], highest: float) -> list[View]:
    """Tensors by themselves, where the process around them is so large that they would be a thin line."""
    tensors = max((c.total for c in searched), default=0) if len(searched) > 1 else 0
    if not tensors or _THIN * tensors > highest:
        return []
    x = min(s.x[0] for s in series), max(s.x[-1] for s in series)
    return [View(label="all", x=x, y=(0.0, 1.05 * highest)), View(label="tensors only", x=x, y=(0.0, 1.2 * tensors))]


def peaks_chart(rank: RankRecording, report: Report) -> Chart | None:
    """The peak of each sampled window by category."""
    windows = _windows(rank)
    if not windows:
        return None
    totals: dict[str, int] = {}
    for window in windows:
        for name, held in window.categories.items():
            totals[name] = max(totals.get(name, 0), held)
    names = [name for name in sorted(totals, key=lambda n: -totals[n]) if totals[name]]
    # A window has its categories at its peak; bars stand in a row, since windows lie far apart.
    places = [float(number) for number in range(len(windows))]
    series = [
        Series(name=n, role=n, x=places, y=[float(w.categories.get(n, 0)) for w in windows], style="bar") for n in names
    ]
    highest = max(windows, key=lambda w: w.peak)
    most = max(highest.categories.items(), key=lambda c: c[1], default=("", 0))
    number = count(len(windows), "sampled stretch", "sampled stretches")
    told = f"The highest peak of {number} is {size(highest.peak)}, {_steps(highest)}"
    return Chart(
        id="peaks",
        title="Peak of sampled steps by category",
        kind="lines",
        caption=told + (f"; most of it is {most[0]} ({size(most[1])})." if most[1] else "."),
        x_title="sampled steps",
        labels=[_short(w) for w in windows],
        unit="bytes",
        rank=rank.rank,
        series=[_noted(s, windows) for s in series],
        notes=["a peak counts what its own steps made and what lasts; what earlier steps left behind is not in it"],
        columns=["steps", "peak", *names],
        rows=[[_steps(w), size(w.peak), *(size(w.categories.get(n, 0)) for n in names)] for w in windows],
    )


def _noted(series: Series, windows: list[Window]) -> Series:
    import msgspec

    return msgspec.structs.replace(series, notes=[_steps(w) for w in windows])


def _steps(window: Window) -> str:
    return f"step {window.first:,}" if window.first == window.last else f"steps {window.first:,} to {window.last:,}"


def _short(window: Window) -> str:
    return f"{window.first:,}" if window.first == window.last else f"{window.first:,} to {window.last:,}"


def _windows(rank: RankRecording) -> list[Window]:
    return rank.since_restart(Window)


def _areas(searched: list[Census], names: list[Holding]) -> list[Series]:
    """Known categories, the names that have gained most, and the rest; they add up to what names reach."""
    if len(searched) < 2:
        return []
    x = [float(c.tick) for c in searched]
    held = [{tuple(h.path): beside_known(h) for h in c.holdings} for c in searched]
    rows = [(name, name, _column([c.categories for c in searched], name)) for name in _names(searched)]
    rows += [(holding.name, "growing", _column(held, tuple(holding.path))) for holding in names]
    told = [sum(y[at] for _, _, y in rows) for at in range(len(searched))]
    rows.append(("other names", "other", [max(0.0, c.total - t) for c, t in zip(searched, told, strict=True)]))
    return [Series(name=name, role=role, x=x, y=[*y], style="area") for name, role, y in rows if any(y)]


def _names(searched: list[Census]) -> list[str]:
    return list(dict.fromkeys(name for c in searched for name in c.categories))


def _column(tables: Sequence[Mapping[Any, int]], key: Any) -> list[float]:
    return [float(table.get(key, 0)) for table in tables]


def _counted(rank: RankRecording) -> list[tuple[str, Sizes, str]]:
    """What the device's allocator or the system counted: a name, the sizes, a style."""
    device = device_sizes(rank)
    if device:
        reserved = [(s.n, s.reserved) for s in current_steps(rank) if s.reserved is not None]
        return [("allocated on the device", device, "line"), ("reserved on the device", reserved, "dash")]
    return [
        ("heap of the process", heap_sizes(rank), "line"),
        ("resident set of the process", resident_sizes(rank), "dash"),
    ]


def _line(name: str, sizes: Sizes, style: str) -> tuple[Series, list[str]]:
    values = [float(held) for _, held in sizes]
    places, width = kept(values)
    series = Series(
        name=name,
        role="heap" if style == "line" else "reserved",
        x=[float(sizes[p][0]) for p in places],
        y=[values[p] for p in places],
        style="dash" if style == "dash" else "line",
    )
    return series, thinned(len(values), len(places), width, f"samples of the {name}")


def _told(rank: RankRecording, searched: list[Census], counted: list[tuple[str, Sizes]]) -> str:
    parts = []
    if len(searched) > 1:
        first, last = searched[0], searched[-1]
        parts.append(
            f"tensors that names reach: {size(first.total)} at step {first.tick:,}, "
            f"{size(last.total)} at step {last.tick:,}"
        )
    for name, sizes in counted:
        if len(sizes) > 1:
            parts.append(
                f"{name}: {size(sizes[0][1])} at step {sizes[0][0]:,}, {size(sizes[-1][1])} at step {sizes[-1][0]:,}"
            )
    told = "; ".join(parts)
    return told[:1].upper() + told[1:] + "."


def _areas_note(searched: list[Census]) -> list[str]:
    if len(searched) < 2:
        return []
    places = ", ".join(f"{c.tick:,}" for c in searched[:12]) + (", ..." if len(searched) > 12 else "")
    return [f"the areas are what names reach, searched for at steps {places}; between them nothing was searched"]


def _sampled_note(rank: RankRecording) -> list[str]:
    return ["shaded: steps in which every new storage was noted"] if _windows(rank) else []


def _failures(rank: RankRecording) -> list[Mark]:
    failures = rank.all(MemoryFailure)
    if failures:
        last = failures[-1]
        return [
            Mark(x=float(last.tick + 1), label=f"out of memory: {size(last.asked)} asked for, {size(last.free)} free")
        ]
    outcome = rank.last(Outcome)
    if outcome is not None and outcome.how == "out-of-memory":
        return [Mark(x=float(outcome.ticks), label="out of memory")]
    return []


def _limit(rank: RankRecording, highest: float) -> list[Mark]:
    allowed = limit_of(rank)
    if allowed is None or not highest or allowed.bytes > _NEAR * highest:
        return []
    return [Mark(y=float(allowed.bytes), label=f"limit: {limit(allowed.bytes)}")]


def findings_at(report: Report, rank: RankRecording) -> list[Mark]:
    """Findings whose first step is known: of a growth the step from which its name rose to the last."""
    from torchvet.analysis import growth_of

    began = {tuple(g.holding.path): g.first_tick for g in growth_of(rank).growths}
    found = []
    for number, finding in enumerate(report.findings):
        path = tuple(finding.holder.path) if finding.holder is not None else ()
        if path in began and (finding.rank is None or finding.rank == rank.rank):
            name = finding.holder.name if finding.holder is not None else ""
            found.append(Mark(x=float(began[path]), label=f"{finding.code}: {name} grows", finding=number))
    return found[:5]
