"""An icicle of boxes within boxes, without a script: a column a level, boxes as high as their bytes."""

from __future__ import annotations

from torchvet.charts import Chart, Node
from torchvet.renderers.html.colors import colors_of
from torchvet.renderers.html.markup import Html, tag
from torchvet.renderers.wording import percent, size

HEIGHT = 440
"""Pixels."""
_LEAST, _TWO_LINES = 15, 34
"""Pixels that a box needs for its name, and for its bytes below it."""
_OUTERMOST = 0.5
"""How wide the column of the outermost boxes is, in other columns: it says the least."""


def icicle(chart: Chart, name: str) -> Html:
    """The boxes of a chart; those of one parent stand in the chart's order."""
    nodes = chart.nodes
    whole = sum(n.value for n in nodes if n.parent is None) or 1.0
    levels, tops = _placed(nodes, whole)
    columns = max(levels) + 1
    colors = colors_of(chart)
    boxes = [
        _box(node, levels[at], tops[at], node.value / whole, columns, colors[node.role])
        for at, node in enumerate(nodes)
    ]
    inside = tag("div", *boxes, class_="icicle-in", style=f"height: {HEIGHT}px; min-width: {150 * columns}px")
    return tag("div", inside, class_="icicle scroll", role="group", aria_label=chart.title, aria_describedby=name)


def _placed(nodes: list[Node], whole: float) -> tuple[list[int], list[float]]:
    """Of each box its column, and where it begins as a share of the height."""
    levels: list[int] = []
    tops: list[float] = []
    ends: dict[int | None, float] = {None: 0.0}
    for at, node in enumerate(nodes):
        top = ends.get(node.parent, 0.0)
        levels.append(0 if node.parent is None else levels[node.parent] + 1)
        tops.append(top)
        ends[node.parent] = top + node.value / whole
        ends[at] = top
    return levels, tops


def _box(node: Node, level: int, top: float, share: float, columns: int, color: str) -> Html:
    height = share * HEIGHT
    text = [tag("span", node.label), tag("small", size(node.value))]
    kind = "box" if height >= _TWO_LINES else "box one" if height >= _LEAST else "box tiny"
    wide = columns - 1 + _OUTERMOST
    left, width = (0.0, _OUTERMOST) if level == 0 else (level - 1 + _OUTERMOST, 1.0)
    place = f"left: {100 * left / wide:.3f}%; width: {100 * width / wide:.3f}%"
    place += f"; top: {100 * top:.4f}%; height: {100 * share:.4f}%"
    said = f"{node.label}: {size(node.value)}, {percent(share)} of all"
    return tag(
        "button",
        *text,
        type="button",
        class_=kind,
        style=f"{place}; --own: var(--{color})",
        title=said,
        aria_label=said,
        data_top=f"{top:.6f}",
        data_share=f"{share:.6f}",
        tabindex=-1 if kind == "box tiny" else None,
    )
