"""Reports that fit into an agent's context: long lists are cut, and what was cut is said."""

from __future__ import annotations

from typing import Any

import msgspec

from torchvet.finding import Report
from torchvet.renderers.json import clean

ROWS, DEEP_ROWS = 25, 12
"""Entries of the report's own lists, and of lists within its facts."""


def capped(report: Report, rows: int = ROWS) -> dict[str, Any]:
    """The report's JSON. `facts.truncated` lists what was cut: `findings: 25 of 130 shown`; empty if nothing was."""
    tree: dict[str, Any] = clean(msgspec.to_builtins(report))
    truncated: list[str] = []
    for name in ("findings", "not_checked"):
        tree[name] = _cut(tree[name], rows, name, truncated)
    facts = {name: _within(value, name, truncated) for name, value in tree["facts"].items()}
    return {**tree, "facts": {**facts, "truncated": truncated}}


def _cut(value: list[Any], rows: int, name: str, truncated: list[str]) -> list[Any]:
    if len(value) > rows:
        truncated.append(f"{name}: {rows} of {len(value)} shown")
    return value[:rows]


def _within(value: Any, name: str, truncated: list[str]) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        # A table by path or line may be as long as a list.
        kept = items if len(items) <= 4 * DEEP_ROWS else items[: 4 * DEEP_ROWS]
        if len(kept) < len(items):
            truncated.append(f"{name}: {len(kept)} of {len(items)} shown")
        return {key: _within(one, f"{name}.{key}", truncated) for key, one in kept}
    if isinstance(value, list):
        return [_within(one, name, truncated) for one in _cut(value, DEEP_ROWS, name, truncated)]
    return value
