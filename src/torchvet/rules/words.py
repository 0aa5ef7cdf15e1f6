"""Numbers in messages, written as everywhere in a report."""

from __future__ import annotations

from torchvet.amounts import count, size

__all__ = ["number", "per_step", "size"]


def number(amount: float) -> str:
    """A count with thousands separators, at most one decimal."""
    return count(amount)


def per_step(kind: str) -> str:
    """What a rate is per: an evaluation batch is not a training step."""
    return {"evaluation": "evaluation batch", "forward": "forward pass"}.get(kind, "step")
