"""Functions of torch's own replaced by wrappers, and put back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


def replace(undo: ExitStack, owner: Any, name: str, ours: Any) -> None:
    """Put `ours` in place of an attribute of a class or module, its own or an inherited one, until `undo` is closed."""
    # Read past descriptors, so that a staticmethod goes back as one.
    own = owner.__dict__.get(name)
    setattr(owner, name, ours)
    undo.callback(_restore, owner, name, ours, own)


def _restore(owner: Any, name: str, ours: Any, own: Any) -> None:
    # Somebody may have patched on top of us: taking ours out would take theirs out too.
    if owner.__dict__.get(name) is not ours:
        return
    # It was inherited: ours goes, and the inherited one is seen again.
    if own is None:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
