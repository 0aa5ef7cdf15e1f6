"""A memory snapshot: bytes by category over its events, who holds the peak, how segments are divided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from torchvet.charts import MOST_POINTS, Box, Chart, Mark, Series, Unit, guarded, only, thinned
from torchvet.drawing.holders import HOW_TO_READ, Boxes
from torchvet.formatting import count, limit, percent, size
from torchvet.snapshots.layout import segments_at
from torchvet.snapshots.places import BACKWARD
from torchvet.snapshots.timeline import by_category, clock_of, width_of

if TYPE_CHECKING:
    from torchvet.snapshots.layout import Layout, Live
    from torchvet.snapshots.memory import DeviceMemory, SnapshotMemory
    from torchvet.snapshots.state_at import Moment

LINES, SEGMENTS, BOXES, TICKS = 60, 24, 2_000, 200
"""Lines of the icicle, segments of the layout, its boxes, and steps that have a thin line, at most."""
_NEAR = 1.5
Tree = dict[str, dict[str, dict[str, int]]]
"""Bytes by category, module and line."""


def charts_of_snapshot(memory: SnapshotMemory, rank: int | None, missing: list[str]) -> list[Chart]:
    """Those of each device; `rank` is the place of the file among those given, None for one. `missing` gets those that
    fail."""
    found = []
    for number, device in enumerate(memory.devices):
        suffix, name = ("", "") if number == 0 else (f"-{number + 1}", f", device {device.device}")
        for what, draw in _OF_A_DEVICE:
            chart = guarded(f"{what}{name}", partial(draw, device, rank, suffix, name), missing)
            found += [chart] if chart is not None else []
    return found


def _timeline(device: DeviceMemory, rank: int | None, suffix: str, name: str) -> Chart | None:
    if not len(device.lifetimes.trace):
        return None
    peak, steps, place = device.peak, device.phases.boundaries, _Places(device)
    series, notes = _categories(device, place)
    thin = 0 < len(steps) <= TICKS
    return Chart(
        id=f"memory{suffix}",
        title=f"Memory over the events{name}",
        kind="lines",
        caption=_told(device),
        x_title=place.title,
        x_unit=place.unit,
        unit="bytes",
        stepped=True,
        rank=rank,
        series=series,
        marks=_marks(device, place, series),
        ticks=[place(at) for at in steps] if thin else [],
        notes=[*notes, *only(thin, f"thin lines: {count(len(steps), 'step')}, told by {device.phases.told_by}")],
        columns=["category", "at the peak", "share"],
        rows=[[c, size(b), percent(b / max(1, peak.bytes))] for c, b in peak.by_category.items()],
    )


class _Places:
    """Where an event stands on the axis: at its time, or at its number where torch wrote no times."""

    def __init__(self, device: DeviceMemory) -> None:
        self._clock = clock_of(device)
        self._begin = self._clock(-1) if self._clock is not None else 0
        self.unit: Unit = "seconds" if self._clock is not None else ""
        self.title = "time since the first event" if self._clock is not None else "event"

    def __call__(self, at: int) -> float:
        return (self._clock(at) - self._begin) / 1e6 if self._clock is not None else float(at)


def _categories(device: DeviceMemory, place: _Places) -> tuple[list[Series], list[str]]:
    """What was in use by category, the largest first, and what was reserved; and how many events were left out."""
    x: list[float] = []
    held: dict[str, list[float | None]] = defaultdict(list)
    reserved: list[float | None] = []
    for at, now, from_driver in by_category(device, MOST_POINTS):
        x.append(place(at))
        reserved.append(float(from_driver))
        for category, amount in now.items():
            held[category].append(float(amount))
    order = sorted(held, key=lambda c: -max(v or 0.0 for v in held[c]))
    series = [Series(name=c, role=c, x=x, y=held[c], style="area") for c in order if any(held[c])]
    series.append(Series(name="reserved", role="reserved", x=x, y=reserved, style="dash"))
    number = len(device.lifetimes.trace)
    notes = thinned(number, len(x), width_of(number, MOST_POINTS), "events")
    return series, notes + only(not place.unit, "the snapshot has no times: the axis counts its events")


def _marks(device: DeviceMemory, place: _Places, series: list[Series]) -> list[Mark]:
    """The peak, the last requests that failed, and the limit where it is near."""
    sizes = device.lifetimes.trace.sizes
    marks = [Mark(x=place(device.peak.at), label=f"peak: {size(device.peak.bytes)}", calm=True)]
    marks += [Mark(x=place(at), label=f"out of memory: {size(sizes[at])} asked for") for at in device.ooms[-3:]]
    top = max((v or 0.0 for v in series[-1].y), default=0.0)
    if device.limit and device.limit < _NEAR * top:
        marks.append(Mark(y=float(device.limit), label=f"limit: {limit(device.limit)}"))
    return marks


def _told(device: DeviceMemory) -> str:
    peak = device.peak
    most = next(iter(peak.by_category.items()), ("", 0))
    told = f"The peak is {size(peak.bytes)}, most of it {most[0]} ({size(most[1])}); "
    told += f"{size(device.reserved)} are reserved at the end"
    if device.failure is not None:
        told += f". The last request that failed asked for {size(device.failure.requested)}"
    return f"{told}."


def _holders(device: DeviceMemory, rank: int | None, suffix: str, name: str) -> Chart | None:
    if not device.peak.bytes:
        return None
    moment = device.failure.moment if device.failure is not None else device.peak
    when = "when memory ran out" if device.failure is not None else "at the peak"
    tree, lines = _tree(device, moment)
    boxes = Boxes()
    root = boxes.add(f"device {device.device}", float(moment.bytes), role="other")
    for category, modules in sorted(tree.items(), key=lambda c: -_sum(c[1])):
        outer = boxes.add(category, float(_sum(modules)), root, category)
        for module, of in sorted(modules.items(), key=lambda m: -sum(m[1].values())):
            inner = boxes.add(module, float(sum(of.values())), outer, category)
            for line, held in sorted(of.items(), key=lambda one: -one[1]):
                if line:
                    boxes.add(line, float(held), inner, category)
    return Chart(
        id=f"holders{suffix}",
        title=f"Who holds what {when}{name}",
        kind="icicle",
        caption=f"{size(moment.bytes)} are in use {when}: {boxes.largest()}. {HOW_TO_READ}",
        unit="bytes",
        rank=rank,
        nodes=boxes.nodes,
        notes=[f"the {LINES} largest of {count(lines, 'line')} are drawn"] if lines > LINES else [],
        columns=["what", "bytes", "share"],
        rows=boxes.rows(),
    )


def _sum(modules: dict[str, dict[str, int]]) -> int:
    return sum(sum(of.values()) for of in modules.values())


def _tree(device: DeviceMemory, moment: Moment) -> tuple[Tree, int]:
    """Bytes by category, module and line, the lines that hold least as one; and how many lines there are."""
    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    for category, module, line, held in _blocks(device, moment):
        sizes[category, module, line] += held
    order = sorted(sizes, key=lambda key: -sizes[key])
    found: Tree = {}
    for number, (category, module, line) in enumerate(order):
        shown = (module or "outside modules", line) if number < LINES else ("other lines", "")
        of = found.setdefault(category, {}).setdefault(shown[0], {})
        of[shown[1]] = of.get(shown[1], 0) + sizes[category, module, line]
    return found, len(order)


def _blocks(device: DeviceMemory, moment: Moment) -> Iterator[tuple[str, str, str, int]]:
    trace = device.lifetimes.trace
    for start in moment.blocks:
        facts = device.stacks[trace.stacks[start]]
        place, note = facts.place, ""
        if place is None and facts.kind == BACKWARD:
            place, note = moment.forward_line(start), "backward of "
        yield (
            moment.category[start],
            facts.module,
            f"{note}{place.text}" if place else "no line known",
            trace.sizes[start],
        )
    for older in moment.older:
        place = device.stacks[older.stack].place
        yield device.categories.older[older], "", place.text if place else "no line known", older.size


def _layout(device: DeviceMemory, rank: int | None, suffix: str, name: str) -> Chart | None:
    at = device.failure.at if device.failure is not None else device.lifetimes.peak_at
    when = "when memory ran out" if device.failure is not None else "at the peak"
    segments = sorted((s for s in segments_at(device, at) if s[1]), key=lambda s: (-s[1], s[0]))
    if not segments:
        return None
    shown = segments[:SEGMENTS]
    boxes = [box for row, segment in enumerate(shown) for box in _row(device, row, *segment)]
    notes = only(len(segments) > SEGMENTS, f"the {SEGMENTS} largest of {count(len(segments), 'segment')} are drawn")
    notes += only(len(boxes) > BOXES, f"the {BOXES:,} largest of {len(boxes):,} pieces are drawn")
    notes += only(any(s.expandable for s in device.segments), "expandable segments are left out")
    return Chart(
        id=f"layout{suffix}",
        title=f"How segments are divided {when}{name}",
        kind="blocks",
        caption=_divided(device.layout),
        x_title="offset in the segment",
        unit="bytes",
        rank=rank,
        labels=[f"{number + 1}: {size(length)}" for number, (_, length, _) in enumerate(shown)],
        boxes=sorted(boxes, key=lambda b: -b.size)[:BOXES],
        notes=notes,
        columns=["segment", "size", "in use", "blocks", "free"],
        rows=[_segment(number, length, blocks) for number, (_, length, blocks) in enumerate(segments)],
    )


def _divided(layout: Layout) -> str:
    return (
        f"{size(layout.reserved)} are reserved; {size(layout.split_free)} are free in pieces of "
        f"{count(layout.split_segments, 'segment')} that others hold, the largest {size(layout.largest_free)}; "
        f"{size(layout.whole_free)} are free in whole segments."
    )


def _segment(number: int, length: int, blocks: list[Live]) -> list[str]:
    used = sum(b.size for b in blocks)
    return [str(number + 1), size(length), size(used), count(len(blocks)), size(max(0, length - used))]


def _row(device: DeviceMemory, row: int, address: int, length: int, blocks: list[Live]) -> Iterator[Box]:
    """The pieces of a segment, those in use and those free; neighbours of one category and line are one."""
    at, run = 0, None
    for block in blocks:
        start = block.address - address
        place = device.stacks[block.stack].place
        note = place.text if place is not None else ""
        if run is not None and start == at and run.role == block.category and run.note == note:
            run = Box(row=row, start=run.start, size=run.size + block.size, role=run.role, note=note)
        else:
            if run is not None:
                yield run
            if start > at:
                yield Box(row=row, start=float(at), size=float(start - at), role="free")
            run = Box(row=row, start=float(start), size=float(block.size), role=block.category, note=note)
        at = max(at, start + block.size)
    if run is not None:
        yield run
    if length > at:
        yield Box(row=row, start=float(at), size=float(length - at), role="free")


_OF_A_DEVICE = (
    ("memory over the events", _timeline),
    ("who holds what", _holders),
    ("how segments are divided", _layout),
)
