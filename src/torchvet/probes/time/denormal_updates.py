"""Looks for denormal numbers in optimizers' state, and times an update with and without them after the program has
ended: a CPU may take many times as long for an operation on such a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.elements import some_of
from torchvet.probes.base.kit import Host, Optimizer, Place, StepKind, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.time.real_time import ENDED, TimeWatcher
from torchvet.probes.time.update_times import MOST_BYTES, WAYS, Updated, seconds_of, twin_of
from torchvet.recording.records.timing import DenormalState

_LEAST = 0.05
"""The share of a state's elements from which on they are timed."""
_SAMPLES = 2048
"""Elements of one tensor that are looked at."""
_TINY = torch.finfo(torch.float32).tiny
_DENORMAL = _TINY / 1024
_ROUNDS = 7


@dataclass
class _Seen:
    updated: Updated
    share: float


class DenormalUpdates(TimeWatcher):
    """Optimizers whose state has decayed into denormal numbers. Tensors are not kept."""

    only_sampled = frozenset(["optimizer_starts"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._checkups = Checkups()
        self._places: dict[int, Place] = {}
        self._seen: dict[Place, _Seen] = {}

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """The line that steps it."""
        place = frames.user_place(3)
        if place is not None:
            self._places[id(optimizer)] = place

    def settle(self, tick: int, kind: StepKind) -> None:
        """At a few steps: how much of the state is denormal?"""
        if not self._checkups.due(tick):
            return
        for optimizer in self.host.known.live_optimizers():
            place = self._places.get(id(optimizer))
            share = _share(optimizer) if place is not None else 0.0
            if place is not None and share >= _LEAST:
                self._seen[place] = _Seen(Updated.of(optimizer, place), share)

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time an update with as many denormal numbers, and with them taken for zero."""
        # After an error nobody waits for times.
        if how not in ENDED or _flushes():
            return
        for seen in self._seen.values():
            own = seen.updated.kind.__module__.startswith("torch.optim.")
            if own and 0 < seen.updated.bytes <= MOST_BYTES:
                self.host.write(_timed(seen))


def _share(optimizer: Optimizer) -> float:
    """The share of the state's elements that are denormal, by a sample of each tensor of float32 on the CPU."""
    # Iterating, and not asking by key: `state` is a defaultdict.
    values = [value for kept in list(optimizer.state.values()) if isinstance(kept, dict) for value in kept.values()]
    tensors = [v for v in values if isinstance(v, torch.Tensor) and v.dtype is torch.float32 and v.device.type == "cpu"]
    denormal = every = 0.0
    for tensor in tensors:
        some = some_of(tensor, _SAMPLES)
        # One number is the count of steps.
        if some is not None and len(some) > 1:
            sizes = some.abs()
            denormal += float(((sizes < _TINY) & (sizes > 0)).float().mean()) * tensor.numel()
            every += tensor.numel()
    return denormal / every if every else 0.0


def _flushes() -> bool:
    """Whether the program has switched such numbers off already: torch does not tell its setting."""
    return float(torch.tensor(_DENORMAL) * 1.0) == 0


def _timed(seen: _Seen) -> DenormalState:
    given = seen.updated.groups[0][0]
    twin = twin_of(seen.updated, {way: True for way in WAYS if given.get(way)})
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_ROUNDS):
        for flush, times in taken.items():
            _decay(twin, seen.share)
            torch.set_flush_denormal(flush)
            try:
                times.append(seconds_of(twin))
            finally:
                torch.set_flush_denormal(False)
    elements = sum(shape.numel() for _, shapes in seen.updated.groups for shape, *_ in shapes)
    return DenormalState(
        name=seen.updated.kind.__name__,
        place=seen.updated.place,
        share=seen.share,
        elements=elements,
        plain=min(taken[False]),
        flushed=min(taken[True]),
    )


def _decay(twin: Any, share: float) -> None:
    """Make this share of an optimizer's state denormal, and the gradients there zero, as of inputs that are silent."""
    for parameter, kept in twin.state.items():
        part = round(share * parameter.numel())
        parameter.grad.view(-1)[:part] = 0
        for value in kept.values():
            if isinstance(value, torch.Tensor) and value.numel() == parameter.numel() > 1:
                value.view(-1)[:part] = _DENORMAL
