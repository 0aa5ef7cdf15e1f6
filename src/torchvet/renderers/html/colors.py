"""Which color a category, a phase or a name has: the same on every chart of a page."""

from __future__ import annotations

from torchvet.charts import Chart

_KNOWN = {
    "parameters": 0, "gradients": 1, "optimizer state": 2, "activations": 3, "buffers": 4, "inputs": 5, "temporaries": 7,
    "backward temporaries": 7, "optimizer temporaries": 8, "kept over steps": 9, "growing": 9, "unknown": 7, "other": 7,
    "free": 7, "data": 5, "forward": 3, "backward": 1, "optimizer": 2, "before": 7, "after": 0, "compute": 3,
    "communication": 2, "copies": 5, "idle": 9, "forecast": 9, "loss": 0, "gradient norm": 1, "loss scale": 2,
}  # fmt: skip
"""Places in the palette of page.css."""
_INK = {"heap": "ink", "reserved": "soft"}
_OTHERS = (4, 6, 8, 5, 2, 0, 1)
"""Of roles that have no color of their own: one by the letters of the name, the same on every chart."""


def colors_of(chart: Chart) -> dict[str, str]:
    """The name of a color in page.css for each role of a chart."""
    roles = [s.role or s.name for s in chart.series] + [n.role for n in chart.nodes] + [b.role for b in chart.boxes]
    found: dict[str, str] = {}
    for role in dict.fromkeys(roles):
        # What is older than a snapshot's recording is told by its category and a word.
        known = _KNOWN.get(role.removesuffix(" (older)"))
        place = known if known is not None else _OTHERS[sum(role.encode()) % len(_OTHERS)]
        found[role] = _INK.get(role, f"c{place}")
    return found
