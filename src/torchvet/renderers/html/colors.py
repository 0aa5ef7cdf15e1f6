"""Which color a category, a phase or a name has: the same on every chart of a page."""

from __future__ import annotations

from torchvet.charts import Chart

_SHARED = (
    ("parameters", "after", "loss"),
    ("gradients", "backward", "gradient norm"),
    ("optimizer state", "optimizer", "communication", "loss scale"),
    ("activations", "forward", "compute"),
    ("buffers",),
    ("inputs", "data", "copies"),
    (),
    ("temporaries", "backward temporaries", "unknown", "other", "free", "before"),
    ("optimizer temporaries",),
    ("kept over steps", "growing", "forecast", "idle"),
)
"""By the places in the palette of page.css."""
_KNOWN = {role: place for place, roles in enumerate(_SHARED) for role in roles}
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
