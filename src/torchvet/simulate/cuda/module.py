"""Puts what `torch.cuda` and `torch.accelerator` answer in place."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from torchvet.simulate.cards import Card
from torchvet.simulate.cuda import accelerator, cards, memory, random, streams


def install(card: Card) -> None:
    """Replace the functions for which there must be a GPU, by name, wherever torch has them."""
    cards.use(card)
    for source in (cards, memory, random, streams):
        for name in source.ANSWERS:
            _put(torch.cuda, name, getattr(source, name))
    for name, answer in accelerator.ANSWERS.items():
        _put(torch.accelerator, name, answer)
    torch.version.cuda = "12.8"


def _put(package: ModuleType, name: str, answer: Any) -> None:
    """In the package and in those of its modules that have the name too."""
    setattr(package, name, answer)
    for value in list(vars(package).values()):
        if isinstance(value, ModuleType) and value.__name__.startswith(package.__name__ + ".") and hasattr(value, name):
            setattr(value, name, answer)
