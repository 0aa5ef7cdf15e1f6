"""Amounts in the messages of rules, written as everywhere in a report."""

from __future__ import annotations

from torchvet.formatting import count, ms, percent, size

__all__ = ["count", "ms", "per_step", "percent", "size"]


def per_step(kind: str) -> str:
    """The unit of a rate: an evaluation batch is not a training step."""
    return {"evaluation": "evaluation batch", "forward": "forward pass"}.get(kind, "step")
