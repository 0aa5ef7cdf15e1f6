"""Looks for passes without gradients in which dropout or batch norm is at work: evaluations in train mode, and dropout
that does not ask for the mode."""

from __future__ import annotations

import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, SiteWatcher, around, frames, overloads, user_lines
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.recording.records.layers import DroppedInEvalMode
from torchvet.recording.records.training import TrainModePass

# A line opens a region for each batch: a few tell what all of them do.
_EACH = 3
"""Regions without gradients that are looked into, of those that one line opens."""
_ALL = 200
_CALLS = 500
"""Modules that are heard of in one region: a deep model's first pass."""
_DEEPEST = 8
_DRAWS = overloads("bernoulli_.float native_dropout _fused_dropout")
"""What dropout draws its mask by."""
_LINES = 32


class TrainModePasses(SiteWatcher[Place, TrainModePass]):
    """Evaluations in train mode."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._opened: Counter[tuple[CodeType, int]] = Counter()
        self._looked = 0
        self._left = 0
        self._hook = ModuleHooks(before=self._called)

    def install(self) -> None:
        """Hear where gradients are switched off."""
        for region in (torch.no_grad, torch.inference_mode):
            self.replace(region, "__enter__", lambda o: around(o, self._opening))

    def remove(self) -> None:
        """Leave torch as it was."""
        self._hook.off()
        super().remove()

    def _opening(self, args: Any, kwargs: Any) -> None:
        if self._hook.wanted or not self.host.active or self._looked >= _ALL:
            return
        # Past this method and the tap around `__enter__`.
        frame: FrameType | None = sys._getframe(2)
        # A decorated function: a frame of torch's lies between it and its caller.
        if frame is not None and frame.f_code.co_name == "decorate_context":
            frame = frame.f_back
        # Optimizers and torch's own functions switch gradients off for themselves.
        if frame is None or frames.owner(frame.f_code.co_filename) == frames.TORCH:
            return
        # The program's code object: see `finish`.
        key = frame.f_code, frame.f_lineno
        if self._opened[key] < _EACH:
            self._opened[key] += 1
            self._looked += 1
            self._left = _CALLS
            # Hooks are on only within such regions: each costs a call for every module.
            self._hook.on()

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if not self.host.active:
            return
        with self.host.looking("modes of evaluations"):
            self._left -= 1
            found = not torch.is_grad_enabled() or torch.is_inference_mode_enabled()
            acts = found and module.training and differs(module)
            if acts:
                self._note(module)
            # With gradients on again, the region has ended without a pass: what runs is training.
            # One layer that acts is enough.
            if acts or not found or self._left <= 0:
                self._hook.off()

    def _note(self, module: torch.nn.Module) -> None:
        places = user_lines(sys._getframe(2), _DEEPEST)
        if places:
            new = TrainModePass(place=places[0], layer=type(module).__name__, around=places[1:])
            self.sites.setdefault(places[0], new).passes += 1

    def finish(self, how: str, error: BaseException | None) -> None:
        """Code objects of the program's are not to outlive it here."""
        self._opened.clear()


def differs(module: torch.nn.Module) -> bool:
    """Whether a layer does in train mode what it does not in eval mode."""
    if isinstance(module, private.Dropouts):
        return bool(module.p > 0)
    return bool(isinstance(module, private.BatchNorms) and module.running_mean is not None)


class DroppedInEvalModeProbe(SiteWatcher[Place, DroppedInEvalMode]):
    """Dropout in sampled passes of modules that are in eval mode. Whether it was meant source says."""

    def install(self) -> None:
        """Hear what draws masks."""
        self.host.hear(_DRAWS, self._drawn)

    def _drawn(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        module = None if torch.is_grad_enabled() else self.host.ledger.running()
        if module is None or module.training:
            return
        place = self.host.line()
        if place is not None and (place in self.sites or len(self.sites) < _LINES):
            new = DroppedInEvalMode(place=place, module=type(module).__name__)
            self.sites.setdefault(place, new).calls += 1
