"""Looks whether a model that was trained in train mode is trained in eval mode later: dropout off, statistics still."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, frames, user_lines
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.training.train_mode import differs
from torchvet.recording.records.training import EvalModeSteps

_EVALUATIONS = 20
"""Calls of `eval()` after which it is seen what the model does next."""
_CALLS = 500
"""Modules that are heard of until then: other models may run first."""
_MOST = 20_000
"""Modules of a program that are looked through at a sampled step."""


_AROUND = 3
"""Lines that are told which led to `eval()`."""


@dataclass
class _Known:
    """A model as it was at the last look. `moved` tells whether it has been trained since: see `_moved`."""

    root: weakref.ref[torch.nn.Module]
    trained: bool = False
    """Whether every such layer was in train mode at the end of some step."""
    in_eval: int | None = None
    """The first look of those up to now that found it in eval mode."""
    moved: tuple[int, ...] | None = None
    stuck: EvalModeSteps | None = None
    switched: Place | None = None
    """The line that called `eval()` on it last."""
    around: list[Place] = field(default_factory=list)
    """Those that led to it, outward."""
    evaluated: bool = False
    """Whether it ran without gradients next."""


class StuckModes(Watcher):
    """Training in eval mode."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: dict[int, _Known] = {}
        self._checkups = Checkups()
        self._waiting: set[int] = set()
        """Models whose next call is waited for, by identity."""
        self._stuck: list[EvalModeSteps] = []
        self._hook = ModuleHooks(before=self._called)
        self._left = 0
        self._heard = 0

    def remove(self) -> None:
        """Leave torch as it was."""
        self._hook.off()
        super().remove()

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Watcher`."""
        known = self._known.get(id(module))
        # Only of a model that was trained in train mode does a later `eval()` tell.
        if training or known is None or not known.trained or not self.host.active:
            return
        place = frames.user_place(2)
        if place is not None and self._heard < _EVALUATIONS and known.root() is module:
            self._heard += 1
            known.switched, known.evaluated = place, False
            known.around = user_lines(sys._getframe(2), 1 + _AROUND)[1:]
            self._waiting.add(id(module))
            self._left = _CALLS
            self._hook.on()

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        self._left -= 1
        if id(module) in self._waiting:
            self._waiting.remove(id(module))
            known = self._known.get(id(module))
            if known is not None and known.root() is module:
                # Whether the switch was meant for an evaluation shows in its next call.
                known.evaluated = not torch.is_grad_enabled()
        if not self._waiting or self._left <= 0:
            self._waiting.clear()
            self._hook.off()

    def settle(self, tick: int, kind: StepKind) -> None:
        """A step ended: which modes are the models in that are being trained?"""
        # Going through all layers takes time, and modes change rarely.
        if kind != "training" or not (self._checkups.due(tick) or self.host.sampling):
            return
        for root in self.host.known.live_roots():
            layers = _layers(root)
            if layers:
                self._look(root, layers, tick)

    def _look(self, root: torch.nn.Module, layers: list[torch.nn.Module], tick: int) -> None:
        modes, moved = {layer.training for layer in layers}, _moved(root)
        known = self._model(root)
        # A model that was trained and is kept (a fold's, an ensemble's) has its last gradients, too: only one that
        # goes on from look to look in eval mode is trained so.
        # Its parameters, or its gradients, are others than at the look before.
        goes_on = known.in_eval is not None and moved is not None and moved != known.moved
        if modes == {True}:
            known.trained, known.switched = True, None
        known.in_eval = None if modes != {False} else known.in_eval if goes_on else tick
        known.moved = moved
        if known.in_eval is not None and known.trained and goes_on:
            self._count(root, known, layers[0], known.in_eval)

    def _count(self, root: torch.nn.Module, known: _Known, layer: torch.nn.Module, since: int) -> None:
        """One more step of a model in eval mode; with the first the one before it, which looked the same."""
        if known.stuck is None:
            known.stuck = EvalModeSteps(model=type(root).__name__, layer=type(layer).__name__, since=since, steps=1)
            self._stuck.append(known.stuck)
        known.stuck.steps += 1
        # The line is told only if an evaluation followed: the `train()` after it is what is missing.
        if known.evaluated and known.switched is not None:
            known.stuck.switched, known.stuck.around = known.switched, known.around

    def _model(self, root: torch.nn.Module) -> _Known:
        """What is known of a model; an identity may come again when a model is gone."""
        known = self._known.get(id(root))
        if known is None or known.root() is not root:
            known = self._known[id(root)] = _Known(weakref.ref(root))
        return known

    def totals(self, tick: int) -> Iterable[Record]:
        """Each model's."""
        return list(self._stuck)


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


def _moved(root: torch.nn.Module) -> tuple[int, ...] | None:
    """What is another after every step of a model: a parameter's version, or the gradient that it has. None of a model
    without gradients: what only computes targets is in eval mode on purpose."""
    for p in root.parameters():
        gradient = gradient_of(p)
        if gradient is not None:
            return p._version, id(gradient), gradient._version
    return None
