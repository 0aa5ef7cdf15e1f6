"""Watches containers several of whose entries are one module: called with the same input, all give the same result."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from torchvet.probes.base.kit import (
    EVERY_STEP,
    Host,
    Place,
    SiteWatcher,
    StepKind,
    frames,
    outward,
    tap,
    tensors_within,
)
from torchvet.probes.base.ledger import storage_key
from torchvet.probes.internals import private
from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics.half import in_backward
from torchvet.recording.records.layers import RepeatedEntry

_WHAT = "entries that are one module"
_MODULES = 32
"""Repeated modules that are followed at most."""
_STEPS = 8
"""Sampled steps with calls after which a module is left alone. Chosen, not measured."""
_ROW = 3
"""Calls in a row with the same input and result that are enough where there are more entries: the keys, queries and
values of an attention have an entry each, and what comes out another. Chosen, not measured."""
_MOST = 1 << 23
"""Numbers of a result that is looked at."""
_NEAR = 1e-5
"""Of a sum of sizes: how far the sums of two equal results may lie apart, as kernels may add in another order."""
_BUILDS = (
    (nn.ModuleList, "__init__ extend append"),
    (nn.Sequential, "__init__ append extend"),
    (nn.ModuleDict, "__init__ update"),
)
_Sums = list[tuple[float, float]]
_Input = list[tuple[weakref.ref[torch.Tensor], Any]]


@dataclass
class _Followed:
    """A module that stands at several places of a container, and its last calls."""

    record: RepeatedEntry
    module: weakref.ref[nn.Module]
    given: _Input | None = None
    again: bool = False
    """Whether the call under way has the same input as the last one."""
    result: _Sums | None = None
    calls: int = 0
    row: int = 0
    """Calls in the step under way, and those in a row with the same input and result."""
    step: int = -1
    steps: int = 0


class RepeatedEntries(SiteWatcher[int, RepeatedEntry]):
    """Modules that stand at several places of one container, and are given the same input as often."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP
        self._calls = ModuleCalls()
        self._followed: dict[int, _Followed] = {}

    def install(self) -> None:
        """Hear of containers that are built."""
        for kind, methods in _BUILDS:
            for name in methods.split():
                if name in kind.__dict__:
                    self.replace(kind, name, tap(self.host, _WHAT, after=self._built))

    def remove(self) -> None:
        """Leave torch as it was."""
        self._calls.close()
        super().remove()

    def _built(self, _: Any, container: nn.Module, *__: Any, **___: Any) -> None:
        entries = [one for one in container._modules.values() if one is not None]
        if len({id(one) for one in entries}) == len(entries):
            return
        place = _built_by_user()
        if place is None:
            return
        for module in {id(one): one for one in entries}.values():
            times = sum(one is module for one in entries)
            # A table that all layers look their positions up in is shared on purpose.
            table = isinstance(module, nn.Embedding)
            if times > 1 and not table and next(module.parameters(), None) is not None:
                self._follow(module, container, times, place)

    def _follow(self, module: nn.Module, container: nn.Module, times: int, place: Place) -> None:
        known = self._followed.get(id(module))
        # Grown one by one: the line that began to repeat it stays.
        if known is not None and known.module() is module:
            known.record.entries = max(times, known.record.entries)
            return
        if len(self._followed) >= _MODULES or not self._calls.can_follow(module):
            return
        new = RepeatedEntry(
            id=len(self.sites),
            place=place,
            container=_torch_name(container),
            module=type(module).__name__,
            entries=times,
        )
        one = self._followed[id(module)] = _Followed(new, weakref.ref(module))
        self.sites[new.id] = new
        self._calls.follow(module, partial(self._called, one), partial(self._returned, one))
        self.heed()

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. Not amid a call, whose followers are gone through."""
        for key, one in self._followed.items():
            if one.steps >= _STEPS:
                self._calls.forget(key)

    def _called(self, one: _Followed, args: Any, kwargs: Any) -> bool | None:
        # A checkpoint computes its part again within the backward pass.
        if not self.host.sampling or not self.host.active or not torch.is_grad_enabled() or in_backward():
            return None
        with self.host.looking(_WHAT):
            return self._compare(one, args, kwargs)
        return None

    def _compare(self, one: _Followed, args: Any, kwargs: Any) -> bool | None:
        module = one.module()
        tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        if module is None or tracing or private.functorch_level() is not None:
            return None
        if one.step != self.host.tick:
            one.step, one.row, one.calls, one.given = self.host.tick, 0, 0, None
            one.steps += 1
        with private.DisableTorchFunction():
            given = [] if self._is_constant(args, kwargs) else _input(args, kwargs)
        one.again = one.given is not None and _same(one.given, given)
        one.calls += 1
        one.given = given or None
        if one.calls == 2:
            one.record.called += 1
            self._measure(one.record, module)
        return True

    def _returned(self, one: _Followed, _: Any, output: Any) -> None:
        with self.host.looking(_WHAT), private.DisableTorchFunction():
            result, last, record = _sums(output), one.result, one.record
            # Noise that the program draws itself makes another result, and so do weights that were changed meanwhile.
            alike = record.draws or result is None or last is None or _near(last, result)
            one.row, one.result = one.row + 1 if one.again and alike else 1, result
            if one.row < min(record.entries, _ROW):
                return
            record.times = max(record.times, one.row)
            if record.last != self.host.tick:
                record.steps += 1
                record.last = self.host.tick

    @staticmethod
    def _measure(record: RepeatedEntry, module: nn.Module) -> None:
        trained = [p for p in module.parameters() if p.requires_grad]
        record.parameters = sum(p.numel() for p in trained if not nn.parameter.is_lazy(p))
        record.draws = record.draws or any(_draws(part) for part in module.modules())

    def _is_constant(self, args: Any, kwargs: Any) -> bool:
        """Whether it is given buffers or parameters alone: the same in all layers, as positions are."""
        return all(storage_key(one) in self.host.ledger.known for one in tensors_within([args, kwargs]))

    def totals(self, tick: int) -> Iterator[RepeatedEntry]:
        """Those that train and were called again."""
        return (one for one in self.sites.values() if one.called and one.parameters)


def _built_by_user() -> Place | None:
    """The user's line that builds a container itself; what a library repeats is its own business."""
    for frame in outward(sys._getframe(1)):
        whose = frames.owner(frame.f_code.co_filename)
        if whose == frames.USER:
            return frames.place_of(frame)
        if whose in (frames.TORCH, frames.INSTALLED):
            return None
    return None


def _torch_name(container: nn.Module) -> str:
    return next(kind.__name__ for kind, _ in _BUILDS if isinstance(container, kind))


def _draws(part: nn.Module) -> bool:
    """Whether a part of a module draws anew at each call."""
    drops: Any = getattr(part, "p", getattr(part, "dropout", 0.0))
    return part.training and isinstance(drops, float) and drops > 0


def _input(args: Any, kwargs: Any) -> _Input:
    """What tells the tensors of a call: held weakly, as memory is not to live longer than without a look."""
    found: _Input = []
    for tensor in tensors_within([args, kwargs]):
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            return []
        if tensor.is_inference():
            return []
        # A view is made anew for each call; what it is a view of lives on.
        owner = tensor._base if tensor._base is not None else tensor
        about = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor._version)
        found.append((weakref.ref(owner), about))
    return found


def _same(one: _Input, other: _Input) -> bool:
    """Whether two calls got the very same tensors, unchanged."""
    if len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(a[0]() is not None and a[0]() is b[0]() and a[1] == b[1] for a, b in pairs)


def _sums(output: Any) -> _Sums | None:
    """The sum of each tensor of a result, and that of the sizes of its numbers; None where they may not be read now."""
    found = []
    for tensor in tensors_within(output):
        plain = plain_values(tensor)
        if plain is None or plain.numel() > _MOST or plain.is_complex():
            return None
        wide = plain.double()
        found.append((wide.sum().item(), wide.abs().sum().item()))
    return found


def _near(one: _Sums, other: _Sums) -> bool:
    """Whether two results are the same but for the order in which a kernel adds."""
    if len(one) != len(other):
        return False
    return all(abs(a[0] - b[0]) <= _NEAR * a[1] for a, b in zip(one, other, strict=True))
