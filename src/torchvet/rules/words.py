"""Numbers in messages. Decimal units, as the text report writes them."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes in words: `4.2 MB`; below 1,000 they are exact."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if abs(count) < 999.5 or unit == "TB":
            return f"{count:.2f} {unit}" if abs(count) < 9.995 else f"{count:.1f} {unit}"
    raise AssertionError("unreachable")


def number(count: float) -> str:
    """A count with thousands separators; fractions only below ten."""
    return f"{count:,.1f}" if abs(count) < 10 and count != int(count) else f"{count:,.0f}"


def per_step(kind: str) -> str:
    """What a rate is per: an evaluation batch is not a training step."""
    return {"evaluation": "evaluation batch", "forward": "forward pass", "backward": "step"}.get(kind, "step")
