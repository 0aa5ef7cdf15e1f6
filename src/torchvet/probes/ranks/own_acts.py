"""Writes down what each rank does by itself that makes replicas differ if other ranks do it otherwise.

These are seeds, loaded states, learning rates that a schedule sets, parameters that an optimizer gets late, forward
passes that go around DistributedDataParallel, and parameters that are converted under it. What came of them is
compared afterwards, by digests (`replicas.py`).
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler

from torchvet.probes.base.kit import (
    Host,
    Optimizer,
    Place,
    SiteWatcher,
    StepKind,
    called_by_user,
    frames,
    of_program,
    outward,
    tap,
)
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.ranks.membership import has_joined, is_launched
from torchvet.recording.records.ranks import ActKind, OwnAct

_WHAT = "what ranks do differently"
_MOST = 64
"""Seeds, and lines, that are told apart."""


class OwnActs(SiteWatcher[tuple[ActKind, Place], OwnAct]):
    """What ranks do each by itself, which makes replicas differ."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = frozenset({"forward_ended"})
        self._listens = False
        self._seeds = 0
        self._wrapped: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()

    def install(self) -> None:
        """A launcher has said that there are other ranks; else nothing is heard of before the process joins them."""
        self.replace(DistributedDataParallel, "__init__", tap(self.host, _WHAT, after=self._wraps))
        if is_launched():
            self._listen()

    def settle(self, tick: int, kind: StepKind) -> None:
        """See `install`."""
        if not self._listens and has_joined():
            self._listen()

    def _listen(self) -> None:
        self._listens = True
        for owner, name, before in (
            (torch, "manual_seed", self._seeded),
            # `torch.manual_seed` is the same function under another name: both are replaced.
            (torch.random, "manual_seed", self._seeded),
            (Optimizer, "add_param_group", self._added),
            (torch.nn.Module, "load_state_dict", self._loaded),
            (torch.nn.Module, "_apply", self._converted),
        ):
            self.replace(owner, name, tap(self.host, _WHAT, before=before))
        for kind in {k for k in vars(lr_scheduler).values() if isinstance(k, type)}:
            # Each class that brings its own.
            if issubclass(kind, lr_scheduler.LRScheduler) and "step" in vars(kind):
                self.replace(kind, "step", tap(self.host, _WHAT, before=self._scheduled))
        for name in ("all_to_all", "all_to_all_single"):
            self.replace(torch.distributed, name, tap(self.host, None, before=self._exchanged))

    def _note(self, kind: ActKind, place: Place) -> None:
        one = self.sites.get((kind, place))
        if one is None and len(self.sites) < _MOST:
            one = self.sites[kind, place] = OwnAct(kind=kind, places=[place])
        if one is not None:
            one.times += 1

    def _seeded(self, seed: Any) -> None:
        value = int(seed)
        places = _argument_came_through(value)
        # Later seeds say nothing of how parameters began.
        if places and not self.host.clock.trained:
            self._seeds += 1
            if self._seeds <= _MOST:
                self.host.write(OwnAct(kind="seed", places=places, value=value, times=1))

    def _scheduled(self, scheduler: Any, *_: Any, **__: Any) -> None:
        # Constructors, and schedules within schedules, take steps as well: those are torch's.
        place = called_by_user()
        if place is not None:
            self._note("schedule", place)

    def _added(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        place = called_by_user()
        if place is not None:
            self._note("added", place)

    def _loaded(self, *_: Any, **__: Any) -> None:
        place = called_by_user()
        if place is not None:
            self._note("loaded", place)

    def _converted(self, module: torch.nn.Module, *_: Any, **__: Any) -> None:
        """A module's parts are converted one by one, each by a call of this function: the outermost counts."""
        # `to()` and `half()` call `_apply` for each child from `_apply`.
        if len(self._wrapped) and _caller(sys._getframe(2)) != "_apply" and self._converts(module):
            place = frames.user_place()
            if place is not None:
                self._note("converted", place)

    def _exchanged(self, *_: Any, **__: Any) -> None:
        if not any(kind == "exchanged" for kind, _ in self.sites):
            place = frames.user_place()
            if place is not None:
                self._note("exchanged", place)

    def _parts(self) -> set[int]:
        return {id(part) for model in self._wrapped for part in model.module.modules()}

    def _converts(self, module: torch.nn.Module) -> bool:
        # The wrapper is a module as well, and passes it on.
        return module in self._wrapped or id(module) in self._parts()

    def _wraps(self, _: None, model: DistributedDataParallel, *__: Any, **___: Any) -> None:
        self._wrapped.add(model)
        self.heed()

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Is this root module a part of one that is wrapped, called without the wrapper?"""
        if not torch.is_grad_enabled() or not module.training or isinstance(module, DistributedDataParallel):
            return
        with self.host.looking(_WHAT):
            parts = self._parts()
            # Walking the stack only for a part of a wrapped model.
            callers = of_program(sys._getframe(), (frames.USER,)) if id(module) in parts else iter(())
            # The model's own methods are on the way: the line that asked for the model without its wrapper is told.
            outside = next((frame for frame in callers if id(_variables(frame).get("self")) not in parts), None)
            if outside is not None:
                self._note("around", frames.place_of(outside))


def _variables(frame: FrameType) -> dict[str, Any]:
    # Not `f_locals`: before Python 3.13 what a step has bound would live on in the frame.
    return frame_locals(frame) or {}


def _caller(frame: FrameType) -> str:
    """The function that called what is tapped."""
    return next(
        (one.f_code.co_name for one in outward(frame) if frames.owner(one.f_code.co_filename) != frames.OWN), ""
    )


def _argument_came_through(value: int) -> list[Place]:
    """The user's lines, innermost first, through which a seed came in as a function's argument; the last is the line
    that has made it."""
    found: list[Place] = []
    for frame in of_program(sys._getframe(2), (frames.USER,)):
        found.append(frames.place_of(frame))
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        # Here it is no argument any more: this line has made it. Exact ints only, since `==` may be the
        # program's.
        variables = _variables(frame)
        if not any(type(given := variables.get(n)) is int and given == value for n in names):
            break
    return found
