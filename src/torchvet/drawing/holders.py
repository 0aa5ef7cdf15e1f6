"""Who holds what: from a rank by category and module to the line, as an icicle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.analysis.growth_series import size_of
from torchvet.charts import Chart, Node
from torchvet.formatting import percent, size
from torchvet.recording.records.base import Census, Window

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Site

NAMES = 8
"""Names a category."""
MOST_RANKS = 16
_LASTING = ("parameters", "buffers", "gradients", "optimizer state")
_PHASES = {
    "forward": "activations",
    "backward": "backward temporaries",
    "optimizer": "optimizer temporaries",
    "data": "inputs",
}


class Boxes:
    """The boxes of an icicle, each added below another."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, label: str, value: float, parent: int | None = None, role: str = "") -> int:
        """One more; gives its place."""
        self.nodes.append(Node(label=label, value=value, parent=parent, role=role))
        return len(self.nodes) - 1

    def rows(self) -> list[list[str]]:
        """The largest boxes as a table: the way to each, its bytes, its share of all."""
        whole = sum(n.value for n in self.nodes if n.parent is None) or 1.0
        order = sorted(
            (at for at, n in enumerate(self.nodes) if n.parent is not None), key=lambda at: -self.nodes[at].value
        )
        return [[self._way(at), size(self.nodes[at].value), percent(self.nodes[at].value / whole)] for at in order]

    def _way(self, at: int) -> str:
        node = self.nodes[at]
        return node.label if node.parent is None else f"{self._way(node.parent)} / {node.label}"


def holders_chart(recording: Recording, ranks: Sequence[RankRecording]) -> Chart | None:
    """For each rank the highest sampled peak, and what names have kept beside it from earlier steps."""
    boxes = Boxes()
    for rank in ranks[:MOST_RANKS]:
        _add_rank(boxes, recording, rank)
    if not boxes.nodes:
        return None
    top = [n for n in boxes.nodes if n.parent is None]
    largest = max(top, key=lambda n: n.value)
    kinds = sorted((n for n in boxes.nodes if n.parent == boxes.nodes.index(largest)), key=lambda n: -n.value)[:3]
    shares = ", ".join(f"{n.label} {size(n.value)} ({percent(n.value / largest.value)})" for n in kinds)
    notes = [
        "of a sampled step the ten largest origins were written down; what is left of a category stands as other lines"
    ]
    if len(ranks) > MOST_RANKS:
        notes.append(f"{MOST_RANKS} of {len(ranks)} ranks are drawn")
    return Chart(
        id="holders",
        title="Who holds what",
        kind="icicle",
        caption=f"{largest.label}: {size(largest.value)}; the most of it is {shares}. A box is as large as its bytes; its parts stand beside it.",
        unit="bytes",
        nodes=boxes.nodes,
        notes=notes,
        columns=["what", "bytes", "share"],
        rows=boxes.rows(),
    )


def _add_rank(boxes: Boxes, recording: Recording, rank: RankRecording) -> None:
    windows = rank.since_restart(Window)
    highest = max(windows, key=lambda w: w.peak, default=None)
    kept = _kept(rank)
    categories = {name: held for name, held in (highest.categories if highest is not None else {}).items() if held}
    total = sum(categories.values()) + sum(held for _, held, _ in kept)
    if not total:
        return
    name = f"rank {rank.rank}" if rank.member is not None else "the program"
    root = boxes.add(name, total)
    if kept:
        whole = sum(held for _, held, _ in kept)
        box = boxes.add("kept by names", whole, root, "growing")
        for label, held, line in kept:
            inner = boxes.add(label, held, box, "growing")
            if line:
                boxes.add(line, held, inner, "growing")
    for category, held in sorted(categories.items(), key=lambda c: -c[1]):
        box = boxes.add(category, held, root, category)
        if highest is not None:
            _add_sites(boxes, box, category, held, recording, highest)


def _add_sites(boxes: Boxes, box: int, category: str, held: int, recording: Recording, window: Window) -> None:
    """The origins of a category by module and line."""
    of = [s for s in window.sites if _category(s.site) == category] if category not in _LASTING else []
    modules: dict[str, list[tuple[str, int]]] = {}
    for one in of:
        modules.setdefault(one.site.module or "outside modules", []).append((_line(recording, one.site), one.bytes))
    told = sum(one.bytes for one in of)
    # What was noted at one moment cannot be more than its category; a storage that has become a gradient may be.
    scale = min(1.0, held / told) if told else 1.0
    for module, lines in sorted(modules.items(), key=lambda m: -sum(b for _, b in m[1])):
        inner = boxes.add(module, scale * sum(b for _, b in lines), box, category)
        for line, size_ in lines:
            boxes.add(line, scale * size_, inner, category)
    rest = held - scale * told
    if told and rest > held / 200:
        boxes.add("other lines", rest, box, "other")


def _category(site: Site) -> str:
    return _PHASES.get(site.phase, "activations")


def _line(recording: Recording, site: Site) -> str:
    place = site.place or site.inner
    if place is None:
        return site.op
    code = recording.source_line(place)
    return f"{place.path.replace(chr(92), '/').rpartition('/')[2]}:{place.line}  {code or place.function} ({site.op.removeprefix('aten.')})"


def _kept(rank: RankRecording) -> list[tuple[str, int, str]]:
    """Names that hold more at the last search than a step needs: those that have gained since the first, innermost."""
    found = {c.tick: c for c in rank.since_restart(Census) if not (c.amid or c.final)}
    searched = [found[tick] for tick in sorted(found)]
    if len(searched) < 2:
        return []
    before = {tuple(h.path): size_of(h) for h in searched[0].holdings}
    rows: list[tuple[tuple[str, ...], str, int, str]] = []
    for holding in sorted(searched[-1].holdings, key=lambda h: (-size_of(h), -len(h.path))):
        path = tuple(holding.path)
        within = any(path == p[: len(path)] or p == path[: len(p)] for p, *_ in rows)
        gained = size_of(holding) - before.get(path, 0)
        if not within and gained > searched[-1].total / 50:
            place = holding.place
            line = f"{place.path.rpartition('/')[2]}:{place.line} in {place.function}" if place is not None else ""
            rows.append((path, holding.name, size_of(holding), line))
    return [(name, held, line) for _, name, held, line in rows[:NAMES]]
