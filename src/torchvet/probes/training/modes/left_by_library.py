"""Finds trained parts of a model whose dropout never acts: a library has left them in eval mode.

`from_pretrained` of transformers gives a model in eval mode, and so do loaders of other libraries. A loop that never
calls `train()` on it trains it so; Lightning keeps the mode that it finds.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.internals import private
from torchvet.recording.records.training import LeftInEvalMode

_CALLS = 100
"""Calls of `eval()` by libraries that are followed: validation calls it as often as it runs."""
_MOST = 20_000
"""Modules of a program that are looked through at a sampled step."""


@dataclass
class _Part:
    """A part of a model as it was at the last look."""

    module: weakref.ref[torch.nn.Module]
    record: LeftInEvalMode
    versions: dict[int, int]
    """Of its parameters with gradients, by identity: a step makes them others."""
    acted: bool = False
    """Whether it was in train mode at some look."""


class PartsLeftInEvalMode(Watcher):
    """Parts that were in eval mode in each step that was looked at, although they are trained."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._meant: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        """Modules that the program itself has put into eval mode."""
        self._left: weakref.WeakKeyDictionary[torch.nn.Module, Place] = weakref.WeakKeyDictionary()
        """Modules that a library has put into eval mode, and the line that called the library."""
        self._calls = 0
        self._parts: dict[int, _Part] = {}
        self._checkups = Checkups()

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Watcher`. Into train mode no module is left."""
        if training:
            return
        if _is_of_program(sys._getframe(1)):
            self._meant.add(module)
        elif self._calls < _CALLS:
            self._calls += 1
            place = frames.user_place(2)
            if place is not None:
                for one in _modules(module):
                    self._left.setdefault(one, place)

    def settle(self, tick: int, kind: StepKind) -> None:
        """A step ended: which parts of the models that are trained are in eval mode?"""
        if kind != "training" or not self._left or not (self._checkups.due(tick) or self.host.sampling):
            return
        for part in self._parts.values():
            module = part.module()
            # Once is enough: its modes change, and the looks are few.
            if module is not None and module.training:
                part.acted, part.record.steps = True, 0
        for root in self.host.known.live_roots():
            for module in self._left_in(root):
                self._look(module, tick)

    def _left_in(self, module: torch.nn.Module) -> Iterator[torch.nn.Module]:
        """The largest parts in eval mode of a model, by a library."""
        waiting, looked = [module], 0
        while waiting and looked < _MOST:
            one = waiting.pop()
            looked += 1
            if one in self._meant:
                continue
            if one.training:
                waiting.extend(one.children())
            elif one in self._left:
                yield one

    def _look(self, module: torch.nn.Module, tick: int) -> None:
        known = self._parts.get(id(module))
        versions = {id(p): p._version for p in module.parameters() if gradient_of(p) is not None}
        if known is None or known.module() is not module:
            record = LeftInEvalMode(part=type(module).__name__, layers=0, place=self._left[module], since=tick)
            self._parts[id(module)] = _Part(weakref.ref(module), record, versions)
            return
        moved = {key for key, version in versions.items() if version > known.versions.get(key, version)}
        known.versions = versions
        layers = _silent(module, moved) if moved and not known.acted else 0
        # A part that no step moves is frozen, or computes targets.
        if layers:
            known.record.steps += 1
            known.record.layers = layers

    def totals(self, tick: int) -> Iterable[Record]:
        """All parts that were looked at: of one that was in train mode since, no step counts."""
        return [part.record for part in self._parts.values()]


def _is_of_program(frame: FrameType | None) -> bool:
    """Whether the program itself has called `eval()` or `train(False)`: the innermost of the user's or of a library's
    functions is the user's. Methods of a library's models of these names pass the call on."""
    while frame is not None:
        whose = frames.owner(frame.f_code.co_filename)
        if whose == frames.USER:
            return True
        if whose not in (frames.OWN, frames.TORCH) and frame.f_code.co_name not in ("eval", "train"):
            return False
        frame = frame.f_back
    return False


def _modules(module: torch.nn.Module) -> Iterable[torch.nn.Module]:
    for number, one in enumerate(module.modules()):
        if number >= _MOST:
            return
        yield one


def _silent(module: torch.nn.Module, moved: set[int]) -> int:
    """How many layers of dropout do nothing in what is trained; none where one of the part's acts."""
    silent = 0
    for holder in _modules(module):
        for layer in holder.children():
            if isinstance(layer, private.Dropouts) and layer.p > 0:
                if layer.training:
                    return 0
                # What is frozen, or for the most part, has no use for it.
                own = [id(p) in moved for p in holder.parameters()]
                silent += 2 * sum(own) > len(own)
    return silent
