"""Looks for passes without gradients in which dropout or batch norm is at work: evaluations in train mode."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from types import CodeType, FrameType
from typing import Any

import torch
from torch.nn.modules import module as nn_module

from torchvet.probes.base import frames
from torchvet.probes.base._importlib_bootstrap_taps import around
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import Aside
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.training import TrainModePass

_EACH = 3
"""Regions without gradients that are looked into, of those that one line opens."""
_ALL = 200
_CALLS = 500
"""Modules that are heard of in one region: a deep model's first pass."""
_DEEPEST = 8


class TrainModePasses(Watcher):
    """Evaluations in train mode."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, TrainModePass] = {}
        self._opened: Counter[tuple[CodeType, int]] = Counter()
        self._left = 0
        self._hook = Aside(self._hook_modules)

    def install(self) -> None:
        """Be told where gradients are switched off."""
        for region in (torch.no_grad, torch.inference_mode):
            self.replace(region, "__enter__", lambda o: around(o, self._opening, torch.compiler.is_compiling))

    def remove(self) -> None:
        """Leave torch as it was."""
        self._stop()
        super().remove()

    def _hook_modules(self, undo: ExitStack) -> None:
        undo.callback(nn_module.register_module_forward_pre_hook(self._called).remove)

    def _opening(self, args: Any, kwargs: Any) -> None:
        if self._hook.wanted or not self.host.active or self._opened.total() >= _ALL:
            return
        frame: FrameType | None = sys._getframe(2)
        if frame is not None and frame.f_code.co_name == "decorate_context":
            frame = frame.f_back
        if frame is None or frames.owner(frame.f_code.co_filename) == frames.TORCH:
            return
        key = frame.f_code, frame.f_lineno
        if self._opened[key] < _EACH:
            self._opened[key] += 1
            self._left = _CALLS
            self._hook.on()

    def _stop(self) -> None:
        self._hook.off()

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if not self.host.active:
            return
        with self.host.looking("modes of evaluations"):
            self._left -= 1
            found = not torch.is_grad_enabled() or torch.is_inference_mode_enabled()
            if found and _acts(module):
                self._note(module)
                self._stop()
            elif not found or self._left <= 0:
                self._stop()

    def _note(self, module: torch.nn.Module) -> None:
        places = list(_lines(sys._getframe(2)))
        if places:
            one = self._sites.setdefault(
                places[0], TrainModePass(place=places[0], layer=type(module).__name__, around=places[1:])
            )
            one.passes += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        return list(self._sites.values())

    def finish(self, how: str, error: BaseException | None) -> None:
        """Code objects of the program's are not to outlive it here."""
        self._opened.clear()


def _acts(module: torch.nn.Module) -> bool:
    """Whether a layer does now what it would not in eval mode."""
    return module.training and differs(module)


def differs(module: torch.nn.Module) -> bool:
    """Whether a layer does in train mode what it does not in eval mode."""
    if isinstance(module, private.Dropouts):
        return bool(module.p > 0)
    return bool(isinstance(module, private.BatchNorms) and module.running_mean is not None)


def _lines(frame: FrameType | None) -> Iterable[Place]:
    """The user's lines from a frame outward."""
    found: list[Place] = []
    while frame is not None and len(found) < _DEEPEST:
        if frames.owner(frame.f_code.co_filename) == frames.USER:
            found.append(frames.place_of(frame))
        frame = frame.f_back
    return found
