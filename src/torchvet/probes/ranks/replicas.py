"""Writes down digests of parameters that other ranks may have as well, for them to be compared afterwards.

A digest is of the parameter's bits, so that equal ones mean equal values. It is taken after certain steps of an
optimizer, which are the same on all ranks: by the number of its steps, not by time. Nothing is sent.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Place, StepKind, Unchecked, Watcher, called_by_user, frames, tap
from torchvet.probes.internals.patching import replace
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.ranks.digests import are_constant, digest, digests, is_sharded
from torchvet.probes.ranks.earlier_gradients import EarlierGradients
from torchvet.probes.ranks.membership import has_joined, is_launched
from torchvet.recording.records.ranks import Batch, Replica, Replicas

_WHAT = "replicas of parameters"
_MOST = 256
"""Parameters of an optimizer that are looked at."""
_RARELY = 200
"""Steps between two looks, later on."""
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
        self.ignored = frozenset({"optimizer_starts", "optimizer_ended", "batch_got", "backward_ended"})
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
        self._gradients = EarlierGradients()
        self._copies = False
        """Whether some optimizer steps on copies."""

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
            joins = tap(self.host, _WHAT, after=self._joins)
            self.replace(torch.distributed, "init_process_group", joins)
        wraps = tap(self.host, "modules in DistributedDataParallel", after=self._wraps)
        self.replace(DistributedDataParallel, "__init__", wraps)
        self._hear_of_clipping()
        made = tap(self.host, "where loaders are made", after=self._made)
        for kind in (DataLoader, DistributedSampler, RandomSampler, SequentialSampler) if is_launched() else ():
            self.replace(kind, "__init__", made)

    def _hear_of_clipping(self) -> None:
        clips = tap(self.host, _WHAT, before=self._clips)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self.replace(clip_grad, name, clips)
            # What programs call is the same function in another module.
            replace(self._undo, torch.nn.utils, name, vars(clip_grad)[name])

    def _clips(self, parameters: Any, *_: Any, **__: Any) -> None:
        # An iterator is the program's: to read it would be to use it up.
        several = isinstance(parameters, (list, tuple))
        if not self.ignored and self._looks_next():
            of_all = list(parameters) if several else list(self._stepped())
            self._gradients.clipped(of_all[:_MOST], called_by_user())

    def backward_ended(self, is_grad: bool) -> None:
        """What has the reduction made of gradients? Only where it was one of DistributedDataParallel's."""
        if not is_grad and self._wrapped and self._looks_next():
            with self.host.looking(_WHAT), torch.no_grad():
                self._gradients.passed([p for model in self._wrapped for p in model.module.parameters()][:_MOST])

    def _looks_next(self) -> bool:
        """Whether some optimizer's next step is one that is looked at; before the first step nothing is known."""
        return not self._steps or any(is_due(steps + 1) for _, _, steps in self._steps.values())

    def _stepped(self) -> Iterator[torch.Tensor]:
        """The parameters of all optimizers."""
        for optimizer in self.host.known.live_optimizers():
            yield from _parameters(optimizer)

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
            with self.host.looking(_WHAT), torch.no_grad():
                self._before[id(optimizer)] = list(self._seen(optimizer, steps == 0))

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """Are the parameters the same after it?"""
        reference, number, steps = self._known(optimizer)
        steps += 1
        self._steps[id(optimizer)] = (reference, number, steps)
        before = self._before.pop(id(optimizer), None)
        if before is None:
            return
        with self.host.looking(_WHAT), torch.no_grad():
            # Parameters may have been added since.
            for one, value in zip(before, digests(list(_parameters(optimizer))), strict=False):
                one.after = value
            rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
            place, clipped = frames.user_place(1), self._gradients.place
            self._gradients.forget()
            self.host.write(
                Replicas(optimizer=number, step=steps, parameters=before, rates=rates[:8], place=place, clipped=clipped)
            )

    def _known(self, optimizer: Optimizer) -> tuple[weakref.ref[Optimizer], int, int]:
        known = self._steps.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            # Numbered in the order of their first step: the same on ranks that run one program.
            known = self._steps[id(optimizer)] = (weakref.ref(optimizer), len(self._steps), 0)
        return known

    def _seen(self, optimizer: Optimizer, first: bool) -> Iterator[Replica]:
        parameters = list(_parameters(optimizer))
        names, wrapped, late = self._names()
        copied = self._steps_on_copies(parameters, names)
        self._copies = self._copies or copied
        gradients = [gradient_of(p) for p in parameters]
        before = digests(parameters) if first else [None] * len(parameters)
        # Biases that start at zero are equal whatever the seed was: they prove nothing.
        alike = are_constant(parameters) if first else [False] * len(parameters)
        slopes = digests([g if g is not None else torch.empty(0) for g in gradients])
        for number, (one, value, slope, constant) in enumerate(zip(parameters, before, slopes, alike, strict=True)):
            yield Replica(
                name=names.get(id(one), f"parameter {number}"),
                shape=tuple(one.shape),
                before=value,
                gradient=slope if gradients[number] is not None else None,
                passed=self._gradients.after_pass.get(id(one)),
                unclipped=self._gradients.before_clipping.get(id(one)),
                wrapped=id(one) in wrapped,
                late=id(one) in late,
                sharded=is_sharded(one),
                constant=constant,
                copied=copied,
            )

    def unchecked(self) -> Iterator[Unchecked]:
        """See `Watcher`."""
        if self._copies:
            reason = "an optimizer steps on copies of them; copies that were unlike at the start count as shards"
            yield Unchecked(check=_WHAT, reason=f"{reason}, and are not compared")

    def _steps_on_copies(self, parameters: list[torch.Tensor], names: dict[int, str]) -> bool:
        """Whether an optimizer's parameters are in no module, while modules have parameters that no optimizer has."""
        if any(id(one) in names for one in parameters):
            return False
        owned = self.host.known.owned()
        every = (p for root in self.host.known.live_roots() for p in root.parameters())
        return any(p.requires_grad and id(p) not in owned for p in every)

    def _names(self) -> tuple[dict[int, str], set[int], set[int]]:
        """Parameters' names, which of them DistributedDataParallel keeps equal, and which came too late for it."""
        names: dict[int, str] = {}
        wrapped: set[int] = set()
        late: set[int] = set()
        modules = [m for root in self.host.known.live_roots() for m in root.modules()]
        for model in {*self._wrapped, *(m for m in modules if isinstance(m, DistributedDataParallel))}:
            for name, one in model.module.named_parameters():
                names[id(one)] = name
                known = self._wrapped.get(model)
                # Parameters that were added after the wrapping are not reduced.
                if name not in model.parameters_to_ignore:
                    (wrapped if known is None or id(one) in known else late).add(id(one))
        for root in self.host.known.live_roots():
            for name, one in root.named_parameters():
                names.setdefault(id(one), name)
        return names, wrapped, late


def _parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    every = (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
    return itertools.islice(every, _MOST)
