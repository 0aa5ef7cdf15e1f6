"""Finds the tensors in what a loader or a model hands out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

_LARGEST = 256
"""Items of a container that are looked at: outputs and batches are small, data sets are not."""


def tensors_in(value: Any, depth: int) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dicts (named tuples and model outputs among them), `depth` levels down."""
    # By type alone: `isinstance` would ask the program's object for its class.
    if issubclass(type(value), torch.Tensor):
        return [value]
    if not depth:
        return []
    items: Collection[Any]
    if issubclass(type(value), dict):
        # A copy by the base class: another thread may change it, and a subclass may compute its values.
        items = list(dict.values(value))
    elif issubclass(type(value), (list, tuple)):
        items = value
    else:
        return []
    if len(items) > _LARGEST:
        return []
    return [t for item in items for t in tensors_in(item, depth - 1)]
