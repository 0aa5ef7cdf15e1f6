"""Hears, in a few steps, whether the modules that own some parameters run, and whether with gradients."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, user_lines
from torchvet.probes.internals.compiled_regions import ModuleHooks

_ROUNDS = 2
"""Stretches of steps in which the calls of modules are heard."""


class OwnersCalled:
    """Calls of the modules that own parameters without gradients. Nothing is installed between the stretches."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._hook = ModuleHooks(before=self._called)
        self._rounds = 0
        self._owners: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._heard: dict[int, Place | None] = {}
        """By parameter: the line that ran its owner with gradients switched off, or None if any had them on."""
        self._cut: dict[int, Place] = {}
        """By parameter: the line that ran its owner in a reentrant checkpoint that no gradient enters."""
        self._outside: set[int] = set()
        """Those whose owner ran with gradients outside of such checkpoints, too."""
        self._asked: set[int] = set()
        """Parameters whose owners were listened for to the end."""

    def listen(self, parameters: Collection[int]) -> None:
        """End the stretch that is under way, and begin another for these parameters, if there may be one more."""
        self.end()
        if not parameters or self._rounds >= _ROUNDS:
            return
        self._rounds += 1
        modules = (m for root in self._host.known.live_roots() for m in root.modules())
        # A module with parts runs for many reasons.
        # Layers: their call uses their parameters.
        single = (m for m in modules if not m._modules)
        found = [m for m in single if any(id(p) in parameters for p in m._parameters.values())]
        self._owners = {id(m): weakref.ref(m) for m in found}
        # No hook is put in for nothing.
        if found:
            self._hook.on()

    def end(self) -> None:
        """The stretch is over."""
        self._hook.off()
        modules = (m for m in (ref() for ref in self._owners.values()) if m is not None)
        self._asked |= {id(p) for m in modules for p in m._parameters.values() if p is not None}
        self._owners = {}

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        ref = self._owners.get(id(module))
        if ref is None or ref() is not module or not self._host.active:
            return
        with self._host.looking("modules without gradients"):
            entered = _entered(sys._getframe(1))
            off = torch.is_inference_mode_enabled() or not (torch.is_grad_enabled() or entered)
            places = user_lines(sys._getframe(1), 1) if off else []
            for parameter in map(id, module._parameters.values()):
                if not off:
                    # With gradients once is enough: it may not be blamed on the region.
                    self._heard[parameter] = None
                    if entered is None:
                        self._outside.add(parameter)
                elif places:
                    self._heard.setdefault(parameter, places[0])
                    if entered is not None:
                        self._cut.setdefault(parameter, places[0])

    def switched_off(self, parameters: Collection[int]) -> Place | None:
        """The line that runs the owners of all of these with gradients switched off; None if any runs otherwise."""
        places = [self._heard.get(key) for key in parameters]
        return places[0] if places and all(place is not None for place in places) else None

    def checkpointed(self, parameters: Collection[int]) -> list[Place]:
        """For each of these that a reentrant checkpoint cuts off, the line that ran its owner within it."""
        return [self._cut[key] for key in parameters if key in self._cut and key not in self._outside]

    def silent(self, parameters: Collection[int]) -> bool:
        """Whether none of these was run, as far as they have owners that were listened for."""
        mine = self._asked.intersection(parameters)
        return bool(mine) and not mine & self._heard.keys()


def _entered(frame: FrameType | None) -> bool | None:
    """Whether a gradient enters the checkpoint with `use_reentrant=True` that a frame is within; None in no such one.

    The forward pass has no gradients there, and is run again with them in backward. Only then is it known what enters
    a checkpoint that lies within another."""
    module = sys.modules.get("torch.utils.checkpoint")
    kind = getattr(module, "CheckpointFunction", None)
    codes = [getattr(getattr(kind, name, None), "__code__", None) for name in ("forward", "backward")]
    entered = None
    while kind is not None and frame is not None:
        if frame.f_code is codes[1]:
            return entered is None
        if frame.f_code is codes[0]:
            if any(getattr(frame.f_locals.get("ctx"), "needs_input_grad", ())):
                return True
            entered = False
        frame = frame.f_back
    return entered
