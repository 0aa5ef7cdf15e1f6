"""Writes down digests of parameters that other ranks may have as well, for them to be compared afterwards.

A digest is of the parameter's bits, so that equal ones mean equal values. It is taken after certain steps of an
optimizer, which are the same on all ranks: by the number of its steps, not by time. Nothing is sent.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Place, StepKind, Watcher, called_by_user, frames, tap
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.ranks.membership import has_joined, is_launched
from torchvet.recording.records.ranks import Batch, Replica, Replicas

_MOST = 256
"""Parameters of an optimizer that are looked at."""
_ELEMENTS = 8192
"""Of a parameter, evenly spaced."""
_RARELY = 200
"""Steps between two looks, later on."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DEPTH = 3


def is_due(step: int) -> bool:
    """Whether an optimizer's step is one of those that are looked at: 1, 2, 3, 5, 8, 13, ... and each 200th."""
    return step % _RARELY == 0 or step in _EARLY


def _fibonacci(end: int) -> Iterator[int]:
    one, two = 1, 2
    while one < end:
        yield one
        one, two = two, one + two


# Dense at first, where ranks diverge by how they began; a table, since it is asked at each step.
_EARLY = frozenset(_fibonacci(_RARELY))


class ReplicaWatcher(Watcher):
    """Which parameters are the same on all ranks."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = frozenset({"optimizer_starts", "optimizer_ended", "batch_got"})
        self._steps: dict[int, tuple[weakref.ref[Optimizer], int, int]] = {}
        """By identity: an optimizer, its number, and how many steps it has taken."""
        self._before: dict[int, list[Replica]] = {}
        """What was seen before the step under way, by optimizer."""
        self._batches = 0
        self._wrapped: weakref.WeakKeyDictionary[DistributedDataParallel, set[int]] = weakref.WeakKeyDictionary()
        """Modules that were wrapped, with the parameters (by identity) that they had then: those are kept equal. One
        that is never called itself is among no root modules."""
        self._places: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        """Loaders and samplers that the program itself made, and where."""

    def settle(self, tick: int, kind: StepKind) -> None:
        """Only ranks of a group have others to be equal to."""
        # A program on its own pays nothing.
        if self.ignored and has_joined():
            self.heed()

    def install(self) -> None:
        """See `settle`. A process of a group counts from its first step on, as processes do that are observed only
        once they are in one."""
        self.settle(0, "training")
        if torch.distributed.is_available():
            joins = tap(self.host, "replicas of parameters", after=self._joins)
            self.replace(torch.distributed, "init_process_group", joins)
        wraps = tap(self.host, "modules in DistributedDataParallel", after=self._wraps)
        self.replace(DistributedDataParallel, "__init__", wraps)
        made = tap(self.host, "where loaders are made", after=self._made)
        for kind in (DataLoader, DistributedSampler, RandomSampler, SequentialSampler) if is_launched() else ():
            self.replace(kind, "__init__", made)

    def _joins(self, *_: Any, **__: Any) -> None:
        self.settle(0, "training")

    def _wraps(self, _: None, model: DistributedDataParallel, *__: Any, **___: Any) -> None:
        self._wrapped[model] = {id(p) for p in model.module.parameters()}

    def _made(self, _: None, one: Any, *__: Any, **___: Any) -> None:
        place = called_by_user()
        if place is not None:
            self._places[one] = place

    def _origin(self, iterator: Any) -> Place | None:
        """The line that made the sampler which a loader goes by; where torch made it, the loader's."""
        # Private: what an iterator shares with its loader.
        loader = next(
            (one for one in self._places if getattr(one, "_index_sampler", one) is iterator._index_sampler), None
        )
        sampler = getattr(loader, "sampler", None)
        return self._places.get(sampler) or self._places.get(loader) if loader is not None else None

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """Do ranks train on the same samples?"""
        if not torch.is_grad_enabled():
            return
        self._batches += 1
        if is_due(self._batches):
            with self.host.looking("which batches ranks have"), torch.no_grad():
                # A subclass spread over ranks would communicate.
                tensors = [t for t in tensors_in(batch, _DEPTH) if t.dim() and type(t) is torch.Tensor]
                digests = [int(digest(t)) for t in tensors[:4]]
                if digests:
                    place, made = frames.user_place(1), self._origin(iterator)
                    number, value = self._batches, hash(tuple(digests))
                    self.host.write(Batch(number=number, digest=value, place=place, made=made))

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Are gradients the same before the step? And the parameters, before the first?"""
        _, _, steps = self._known(optimizer)
        # Before the step: gradients must be equal by then, since the reducer has averaged them.
        if is_due(steps + 1):
            with self.host.looking("replicas of parameters"), torch.no_grad():
                self._before[id(optimizer)] = list(self._seen(optimizer, steps == 0))

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """Are the parameters the same after it?"""
        reference, number, steps = self._known(optimizer)
        steps += 1
        self._steps[id(optimizer)] = (reference, number, steps)
        before = self._before.pop(id(optimizer), None)
        if before is None:
            return
        with self.host.looking("replicas of parameters"), torch.no_grad():
            # Parameters may have been added since.
            for one, value in zip(before, digests(list(_parameters(optimizer))), strict=False):
                one.after = value
            rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
            place = frames.user_place(1)
            self.host.write(Replicas(optimizer=number, step=steps, parameters=before, rates=rates[:8], place=place))

    def _known(self, optimizer: Optimizer) -> tuple[weakref.ref[Optimizer], int, int]:
        known = self._steps.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            # Numbered in the order of their first step: the same on ranks that run one program.
            known = self._steps[id(optimizer)] = (weakref.ref(optimizer), len(self._steps), 0)
        return known

    def _seen(self, optimizer: Optimizer, first: bool) -> Iterator[Replica]:
        parameters = list(_parameters(optimizer))
        names, wrapped = self._names()
        gradients = [gradient_of(p) for p in parameters]
        before = digests(parameters) if first else [None] * len(parameters)
        # Biases that start at zero are equal whatever the seed was: they prove nothing.
        alike = _constant(parameters) if first else [False] * len(parameters)
        slopes = digests([g if g is not None else torch.empty(0) for g in gradients])
        for number, (one, value, slope, constant) in enumerate(zip(parameters, before, slopes, alike, strict=True)):
            yield Replica(
                name=names.get(id(one), f"parameter {number}"),
                shape=tuple(one.shape),
                before=value,
                gradient=slope if gradients[number] is not None else None,
                wrapped=id(one) in wrapped,
                sharded=_is_sharded(one),
                constant=constant,
            )

    def _names(self) -> tuple[dict[int, str], set[int]]:
        """Parameters' names, and which of them DistributedDataParallel keeps equal."""
        names: dict[int, str] = {}
        wrapped: set[int] = set()
        modules = [m for root in self.host.known.live_roots() for m in root.modules()]
        for model in {*self._wrapped, *(m for m in modules if isinstance(m, DistributedDataParallel))}:
            for name, one in model.module.named_parameters():
                names[id(one)] = name
                known = self._wrapped.get(model)
                # Parameters that were added after the wrapping are not reduced.
                if name not in model.parameters_to_ignore and (known is None or id(one) in known):
                    wrapped.add(id(one))
        for root in self.host.known.live_roots():
            for name, one in root.named_parameters():
                names.setdefault(id(one), name)
        return names, wrapped


def _parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    every = (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
    return itertools.islice(every, _MOST)


def _is_sharded(parameter: torch.Tensor) -> bool:
    # By name: importing these classes would import torch.distributed's parts.
    return any(kind.__name__ in ("DTensor", "ShardedTensor", "FlatParameter") for kind in type(parameter).__mro__)


def digests(tensors: list[torch.Tensor]) -> list[int | None]:
    """Of several at once: one copy from each device. None for those that cannot be read."""
    return _of_each(tensors, digest)


def _constant(tensors: list[torch.Tensor]) -> list[bool]:
    """Whether each has but one value, as biases of nothing have: by its first and its last element."""
    return list(map(bool, _of_each(tensors, lambda one: one.reshape(-1)[0] == one.reshape(-1)[-1])))


def _of_each(tensors: list[torch.Tensor], figure: Callable[[torch.Tensor], torch.Tensor]) -> list[int | None]:
    found: list[int | None] = [None] * len(tensors)
    by_device: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
    for number, one in enumerate(tensors):
        if not _is_sharded(one) and one.layout is torch.strided and one.numel():
            by_device.setdefault(one.device, []).append((number, figure(one)))
    # One wait for each device, for all its parameters.
    for pairs in by_device.values():
        for (number, _), value in zip(pairs, torch.stack([d for _, d in pairs]).tolist(), strict=True):
            found[number] = value
    return found


def digest(tensor: torch.Tensor) -> torch.Tensor:
    """A sum over the bits of evenly spaced elements, each with a weight of its own, modulo 2**64."""
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    # The same positions on every rank.
    flat = flat.reshape(-1)[:: max(1, flat.numel() // _ELEMENTS)].contiguous()
    bits = flat.view(torch.uint8) if flat.dtype is torch.bool else flat.view(_INTEGERS[flat.element_size()])
    # Odd weights: two elements that are exchanged give another sum, and no bit is lost modulo 2**64.
    weights = torch.arange(1, 2 * bits.numel(), 2, device=bits.device)
    return (bits.long() * weights).sum()
