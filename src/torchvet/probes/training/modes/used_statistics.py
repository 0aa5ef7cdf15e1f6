"""What probes of batch norm's running statistics share: models that they looked at, and which of them evaluate."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from torchvet.probes.base.kit import Host, Place, Watcher, frames

_MOST_PASSES = 400
"""Forward passes that are heard of at most: each costs time."""


class _Used(Protocol):
    used: Place | None


Total = TypeVar("Total", bound=_Used)


@dataclass
class Looked(Generic[Total]):
    """A model that was looked at, held weakly."""

    ref: weakref.ref[torch.nn.Module]
    record: Total


Model = TypeVar("Model", bound=Looked[Any])


class UsedStatistics(Watcher, Generic[Model]):
    """Hears whether a model whose statistics were looked at evaluates with them."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._heard = 0
        self._found: dict[int, Model] = {}

    def known(self, model: torch.nn.Module) -> Model | None:
        """What was seen of this model; nothing of another one that had its identity."""
        known = self._found.get(id(model))
        return known if known is not None and known.ref() is model else None

    def evaluating(self, module: torch.nn.Module) -> Model | None:
        """The model that runs where this module, in eval mode, does."""
        return self.known(module)

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Does one of them evaluate?"""
        self._heard += bool(self._found)
        known = self.evaluating(module) if not module.training else None
        if known is not None:
            known.record.used = known.record.used or frames.user_place(3)

    def wants_modules(self) -> bool:
        """Whether an evaluation that begins may be one's, of which that is not known yet."""
        return self._heard < _MOST_PASSES and any(known.record.used is None for known in self._found.values())
