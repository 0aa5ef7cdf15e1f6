"""Looks whether a model that was trained in train mode is trained in eval mode later: dropout off, statistics still."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.train_mode import differs
from torchvet.probes.watcher import Host, Watcher
from torchvet.recording.records import Record, StepKind
from torchvet.recording.training_records import EvalModeSteps

_MOST = 20_000
"""Modules of a program that are looked through at a sampled step."""


class StuckModes(Watcher):
    """Training in eval mode."""

    only_sampled = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._trained: set[int] = set()
        """Models, by identity, of which every such layer was in train mode at the end of a step."""
        self._stuck: dict[int, EvalModeSteps] = {}

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: which modes are the models in that have gradients?"""
        if kind != "training":
            return
        for root in self.host.known.live_roots():
            layers = _layers(root)
            modes = {layer.training for layer in layers}
            if modes == {True}:
                self._trained.add(id(root))
            elif modes == {False} and id(root) in self._trained and _trains(root):
                one = self._stuck.setdefault(
                    id(root), EvalModeSteps(model=type(root).__name__, layer=type(layers[0]).__name__, since=tick)
                )
                one.steps += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each model's."""
        return list(self._stuck.values())


def _layers(root: torch.nn.Module) -> list[Any]:
    """The layers of a model that do in train mode what they do not in eval mode; none of a model too large to look
    through."""
    found = []
    for number, module in enumerate(root.modules()):
        if number >= _MOST:
            return []
        if differs(module):
            found.append(module)
    return found


def _trains(root: torch.nn.Module) -> bool:
    """Whether a model's parameters have gradients: what only computes targets is in eval mode on purpose."""
    return any(p.grad is not None for p in root.parameters())
