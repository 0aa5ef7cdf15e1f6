"""Blocks that a model repeats: what one would put under `torch.utils.checkpoint`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_CLASSES = 2
"""Classes of blocks that are tried."""


@dataclass
class Blocks:
    """The modules of one class that stand in the model's lists, none within another."""

    name: str
    first: str
    modules: list[nn.Module] = field(default_factory=list)

    @property
    def elements(self) -> int:
        """Of all their parameters."""
        return sum(p.numel() for m in self.modules for p in m.parameters())

    def checkpoint(self) -> None:
        """From now on each keeps its inputs alone for the backward pass."""
        for module in self.modules:
            # On the instance, which `restore` then only has to take out again; its class stays as it is.
            module.__dict__["forward"] = _checkpointed(module.forward)

    def restore(self) -> None:
        """As they were."""
        for module in self.modules:
            module.__dict__.pop("forward", None)


def _checkpointed(forward: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is saved for a backward pass: there is nothing to checkpoint.
        # See also `use_reentrant=False` below: the other variant needs an input that requires gradients.
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return call


def repeated(roots: Iterable[nn.Module]) -> list[Blocks]:
    """The classes with most parameters of which two stand in one list of a model, or are called on their own."""
    found: dict[type, Blocks] = {}
    seen: set[int] = set()
    models = list(roots)
    same = Counter(type(m) for m in models)
    for root in models:
        # Blocks that the program calls one by one are models to themselves.
        alone = same[type(root)] > 1 and any(True for _ in root.children())
        for name, module in [(type(root).__name__, root)] if alone else _in_lists(root, ""):
            # A `forward` on the instance is somebody's patch already; `restore` would take that away.
            if id(module) not in seen and "forward" not in module.__dict__:
                seen.add(id(module))
                kind = found.setdefault(type(module), Blocks(type(module).__name__, name))
                kind.modules.append(module)
    # A class without parameters (activations) keeps little by itself.
    several = [b for b in found.values() if len(b.modules) > 1 and b.elements]
    return sorted(several, key=lambda b: -b.elements)[:_CLASSES]


def _in_lists(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Modules of which a list has two of a class, outermost ones alone; plain layers of torch's own are no blocks."""
    children = list(module.named_children())
    counts: dict[type, int] = {}
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        for _, child in children:
            counts[type(child)] = counts.get(type(child), 0) + 1
    for name, child in children:
        inner = f"{path}.{name}" if path else name
        # Layers without children are torch's own: checkpointing one saves its output alone.
        if counts.get(type(child), 0) > 1 and any(True for _ in child.children()):
            yield inner, child
        else:
            yield from _in_lists(child, inner)
