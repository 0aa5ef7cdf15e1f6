"""Notes which line assigned a module's buffer last: a replay finds a bad buffer, and cannot say who put it there."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from torchvet.probes.base import frames
from torchvet.probes.base.kit import Host
from torchvet.probes.internals.finite import is_finite
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.replay.keeping import Kept
from torchvet.recording.records.base import Place
from torchvet.recording.records.nonfinite import NonFinite

_WHAT = "buffers that are assigned"


class AssignedBuffers:
    """By module and name: the step and the line that last assigned a buffer, from the first step on.

    Models that are being built assign thousands, before any step. What a step assigns (a cache of angles, an average)
    is rare, and torch calls a hook of its own for it, by `register_buffer` as by a plain assignment.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lines: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, tuple[int, Place | None]]] = (
            weakref.WeakKeyDictionary()
        )
        self._hook: Any = None

    def install(self) -> None:
        """Hear of every buffer that any module is given."""
        self._hook = register_module_buffer_registration_hook(self._assigned)

    def remove(self) -> None:
        """Leave torch as it was."""
        if self._hook is not None:
            self._hook.remove()
        self._lines.clear()

    def _assigned(self, module: torch.nn.Module, name: str, buffer: Any) -> None:
        if not self._host.active or self._host.tick == 0:
            return
        with self._host.looking(_WHAT):
            self._lines.setdefault(module, {})[name] = self._host.step, frames.user_place()

    def explain(self, record: NonFinite, kept: Kept) -> None:
        """Since when a buffer is bad that a replay found in place: since it was assigned, or since the step before, if
        a replay puts it back. Any other the failed step itself may have written."""
        assigned = self._of_bad(self._host.known.live_roots())
        if assigned is not None:
            record.since, record.assigned = assigned
        elif kept.begins_bad():
            record.since = max(1, record.tick - 1)

    def _of_bad(self, modules: Iterable[torch.nn.Module]) -> tuple[int, Place | None] | None:
        """The latest assignment of a buffer that is not finite now."""
        parts = {part for module in modules for part in module.modules() if part in self._lines}
        found = [
            self._lines[part][name]
            for part in parts
            for name, buffer in part._buffers.items()
            if name in self._lines[part] and buffer is not None and not is_finite(numbers(buffer))
        ]
        return max(found, key=lambda one: one[0], default=None)
