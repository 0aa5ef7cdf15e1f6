"""Functions of torch's own replaced by wrappers, and put back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


class _Layer:
    """One wrapper, and what it stands in place of."""

    __slots__ = ("done", "ours", "own")

    def __init__(self, ours: Any, own: Any) -> None:
        self.ours, self.own = ours, own
        self.done = False


_layers: dict[tuple[int, str], list[_Layer]] = {}
"""By owner and name: the wrappers that stand on each other, the lowest first."""


def replace(undo: ExitStack, owner: Any, name: str, ours: Any) -> None:
    """Put `ours` in place of an attribute of a class or module, its own or an inherited one, until `undo` is closed.
    Where another was put on top of it meanwhile, that one goes first."""
    # Read past descriptors, so that a staticmethod goes back as one.
    layer = _Layer(ours, owner.__dict__.get(name))
    setattr(owner, name, ours)
    _layers.setdefault((id(owner), name), []).append(layer)
    undo.callback(_restore, owner, name, layer)


def _restore(owner: Any, name: str, layer: _Layer) -> None:
    layer.done = True
    layers = _layers[id(owner), name]
    # Somebody may have patched on top of us: taking ours out would take theirs out too.
    while layers and layers[-1].done and owner.__dict__.get(name) is layers[-1].ours:
        own = layers.pop().own
        # It was inherited: ours goes, and the inherited one is seen again.
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
    # What somebody else's wrapper still calls stays theirs.
    if all(one.done for one in layers):
        del _layers[id(owner), name]
