"""Functions of torch's own replaced by wrappers, and put back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


def replace(undo: ExitStack, owner: Any, name: str, ours: Any) -> None:
    """Put `ours` in place of a class's or module's own attribute until `undo` is closed."""
    original = owner.__dict__[name]
    setattr(owner, name, ours)
    undo.callback(_restore, owner, name, ours, original)


def _restore(owner: Any, name: str, ours: Any, original: Any) -> None:
    # Somebody may have patched on top of us: taking ours out would take theirs out too.
    if owner.__dict__.get(name) is ours:
        setattr(owner, name, original)
