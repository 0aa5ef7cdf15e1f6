"""Puts what `torch.cuda` and `torch.accelerator` answer in place."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from torchvet.simulate.cards import Card
from torchvet.simulate.cuda import accelerator, backends, cards, legacy, memory, random, streams, tools


def install(card: Card) -> None:
    """Replace the functions for which there must be a GPU, by name, wherever torch has them."""
    cards.use(card)
    for source in (cards, memory, random, streams):
        for name in source.ANSWERS:
            _put(torch.cuda, name, getattr(source, name))
    for name, answer in accelerator.ANSWERS.items():
        _put(torch.accelerator, name, answer)
    for name, answer in memory.COMPILED.items():
        setattr(torch._C, name, answer)
    # Programs and libraries ask it whether this is a build for CUDA.
    torch.version.cuda = "12.8"
    torch.cuda._initialized = True  # activation checkpointing keeps devices' random state only then
    torch.get_device_module = functools.wraps(_module_of)(_device_module)  # type: ignore[assignment]
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    for part in (backends, legacy, streams, tools):
        part.install()


_module_of = torch.get_device_module


def _device_module(device: Any = None) -> Any:
    """CUDA's module for whoever asks for the accelerator's."""
    return torch.cuda if device is None else _module_of(device)


def _put(package: ModuleType, name: str, answer: Any) -> None:
    """In the package and in those of its modules that have the same thing under the name."""
    # Compared below, so that a module's own thing of the same name stays.
    before = getattr(package, name, None)
    setattr(package, name, answer)
    for value in list(vars(package).values()):
        # torch imports names from one of its modules into another, where the replacement of one would leave the other.
        own = isinstance(value, ModuleType) and value.__name__.startswith(package.__name__ + ".")
        if own and hasattr(value, name) and (before is None or getattr(value, name) is before):
            setattr(value, name, answer)
