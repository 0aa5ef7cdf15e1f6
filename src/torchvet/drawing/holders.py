"""Who holds what: from a rank by category and module to the line, as an icicle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.analysis.growth_series import beside_known
from torchvet.charts import Chart, Node
from torchvet.formatting import percent, size
from torchvet.recording.records.base import Census, Window

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Holding, Site, SiteBytes

NAMES, MOST_RANKS = 8, 16
"""Names that have a box, and ranks."""
_WORTH = 50
"""The part of all that names reach (a fiftieth) that a name must have gained to be told."""
_LASTING = ("parameters", "buffers", "gradients", "gradient buckets", "optimizer state")
_PHASES = {
    "forward": "activations",
    "backward": "backward temporaries",
    "optimizer": "optimizer temporaries",
    "data": "inputs",
}
HOW_TO_READ = "A box is as large as its bytes, and its parts stand beside it."


class Boxes:
    """The boxes of an icicle, each added below another."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, label: str, value: float, parent: int | None = None, role: str = "") -> int:
        """One more; gives its place."""
        self.nodes.append(Node(label=label, value=value, parent=parent, role=role))
        return len(self.nodes) - 1

    def whole(self) -> float:
        """What the outermost boxes hold in all."""
        return sum(n.value for n in self.nodes if n.parent is None)

    def largest(self, most: int = 4) -> str:
        """The largest parts in words: the outermost boxes, or those of the only one."""
        roots = [at for at, n in enumerate(self.nodes) if n.parent is None]
        outer = roots[0] if len(roots) == 1 else None
        top = sorted((n for n in self.nodes if n.parent == outer), key=lambda n: -n.value)[:most]
        whole = self.whole() or 1.0  # a block of no bytes has a box all the same
        return ", ".join(f"{n.label} {size(n.value)} ({percent(n.value / whole)})" for n in top)

    def rows(self) -> list[list[str]]:
        """All boxes as a table, the largest first: the way to each, its bytes, its share of all."""
        whole = self.whole() or 1.0
        order = sorted(range(len(self.nodes)), key=lambda at: -self.nodes[at].value)
        return [[self._way(at), size(self.nodes[at].value), percent(self.nodes[at].value / whole)] for at in order]

    def _way(self, at: int) -> str:
        node = self.nodes[at]
        return node.label if node.parent is None else f"{self._way(node.parent)} / {node.label}"


def holders_chart(recording: Recording, ranks: Sequence[RankRecording]) -> Chart | None:
    """The highest sampled peak of each rank, and what names have kept beside it from earlier steps."""
    shown = [(rank, *_held(rank)) for rank in ranks[:MOST_RANKS]]
    total = sum(sum(categories.values()) + sum(map(beside_known, names)) for _, categories, names in shown)
    if not total:
        return None
    boxes = Boxes()
    root = boxes.add("all ranks" if len(ranks) > 1 else "the program", total, role="other")
    for rank, categories, names in shown:
        of_rank = sum(categories.values()) + sum(map(beside_known, names))
        outer = boxes.add(f"rank {rank.rank}", of_rank, root, "other") if len(ranks) > 1 else root
        _add_rank(boxes, outer, recording, rank, categories, names)
    notes = ["of a sampled step and of a name only the largest origins were written down"]
    notes += [f"{MOST_RANKS} of {len(ranks)} ranks are drawn"] if len(ranks) > MOST_RANKS else []
    return Chart(
        id="holders",
        title="Who holds what",
        kind="icicle",
        caption=f"{size(boxes.whole())} in all: {boxes.largest()}. {HOW_TO_READ}",
        unit="bytes",
        nodes=boxes.nodes,
        notes=notes,
        columns=["what", "bytes", "share"],
        rows=boxes.rows(),
    )


def _held(rank: RankRecording) -> tuple[dict[str, int], list[Holding]]:
    """The categories of the highest sampled peak, and the names that have kept something beside it."""
    highest = max(rank.since_restart(Window), key=lambda w: w.peak, default=None)
    categories = highest.categories if highest is not None else {}
    return {name: held for name, held in categories.items() if held}, gaining(rank)[:NAMES]


def _add_rank(
    boxes: Boxes,
    root: int,
    recording: Recording,
    rank: RankRecording,
    categories: dict[str, int],
    names: Sequence[Holding],
) -> None:
    if names:
        box = boxes.add("kept by names", sum(map(beside_known, names)), root, "growing")
        for holding in names:
            inner = boxes.add(holding.name, beside_known(holding), box, "growing")
            _add_sites(boxes, inner, "growing", beside_known(holding), recording, holding.sites)
    highest = max(rank.since_restart(Window), key=lambda w: w.peak, default=None)
    for category, held in sorted(categories.items(), key=lambda c: -c[1]):
        box = boxes.add(category, held, root, category)
        if highest is not None and category not in _LASTING:
            of = [one for one in highest.sites if _category(one.site) == category]
            _add_sites(boxes, box, category, held, recording, of)


def _add_sites(boxes: Boxes, box: int, role: str, held: int, recording: Recording, of: Sequence[SiteBytes]) -> None:
    """The origins of what a box holds, by module and line."""
    modules: dict[str, list[tuple[str, int]]] = {}
    for one in of:
        modules.setdefault(one.site.module or "outside modules", []).append((_line(recording, one.site), one.bytes))
    told = sum(one.bytes for one in of)
    if not told:
        return
    # What was noted at one moment may be more than the box: a storage has become a gradient since.
    scale = min(1.0, held / told)
    for module, lines in sorted(modules.items(), key=lambda m: -sum(b for _, b in m[1])):
        inner = boxes.add(module, scale * sum(b for _, b in lines), box, role)
        for line, amount in lines:
            boxes.add(line, scale * amount, inner, role)
    if (rest := held - scale * told) > held / 200:
        boxes.add("lines that were not written down", rest, box, "other")


def _category(site: Site) -> str:
    return _PHASES.get(site.phase, "activations")


def _line(recording: Recording, site: Site) -> str:
    place, operator = site.place or site.inner, site.op.removeprefix("aten.")
    if place is None:
        return operator
    name = place.path.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{place.line} {operator}: {recording.source_line(place) or place.function}"


def searches(rank: RankRecording) -> list[Census]:
    """The last search for names of each boundary, without those in the middle of a step and after the program's end."""
    found = {c.tick: c for c in rank.since_restart(Census) if not (c.amid or c.final)}
    return [found[tick] for tick in sorted(found)]


def gaining(rank: RankRecording) -> list[Holding]:
    """Names that hold much more at the last search than at the first: the innermost, the largest gain first."""
    searched = searches(rank)
    if len(searched) < 2:
        return []
    before = {tuple(h.path): beside_known(h) for h in searched[0].holdings}

    def gain(holding: Holding) -> int:
        return beside_known(holding) - before.get(tuple(holding.path), 0)

    kept: list[Holding] = []
    for holding in sorted(searched[-1].holdings, key=lambda h: (-gain(h), -len(h.path))):
        within = any(holding.path == h.path[: len(holding.path)] or h.path == holding.path[: len(h.path)] for h in kept)
        if not within and _WORTH * gain(holding) > searched[-1].total:
            kept.append(holding)
    return kept
