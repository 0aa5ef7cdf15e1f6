"""Watches modules in DistributedDataParallel: options, unused parameters, which backward calls synchronize."""

from __future__ import annotations

import re
import statistics
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Place, Record, Watcher, frames, tap
from torchvet.probes.crash.raised import deciding, levels_of, message_of, users
from torchvet.probes.ranks.digests import digests
from torchvet.probes.ranks.replicas import is_due
from torchvet.recording.records.ranks import (
    DistributedModule,
    EvaluatedBuffers,
    OwnAct,
    SynchronizedPasses,
    UnfinishedReduction,
)

_WHAT = "modules in DistributedDataParallel"
_FIRST_PASSES = 12
"""Passes at first whose statistics are asked for: torch has new ones in the first ten, then in each hundredth."""
# The reducer's text in C++; it raises a plain RuntimeError.
_UNFINISHED = "Expected to have finished reduction in the prior iteration"
_INDICES = re.compile(r"indices which did not receive grad for rank \d+: ([\d ]+)")
_MOST_NAMES = 8
_NANO = 1e-9


@dataclass
class _Module:
    """What is known of one module, which is held weakly."""

    ref: weakref.ref[DistributedDataParallel]
    record: DistributedModule
    passes: int = 0
    iteration: int = 0
    """The last pass that torch's logger has measured."""
    evaluated: int = 0
    """Passes in evaluation mode."""
    waits: list[float] = field(default_factory=list)
    synchronized: Counter[Place] = field(default_factory=Counter)
    """Backward calls since its optimizer's last step."""


class DistributedModules(Watcher):
    """Modules in DistributedDataParallel."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP
        self._modules: dict[int, _Module] = {}
        self._all: list[DistributedModule] = []
        self._lines: dict[tuple[int, Place], SynchronizedPasses] = {}
        self._ran: dict[int, _Module] = {}
        """Modules that ran since the last backward, and that this backward will synchronize."""
        self._aside: dict[Place, OwnAct] = {}
        """Lines of early passes whose gradients are not to be reduced."""
        self._since = -1
        """The boundary behind the last step of an optimizer that was heard of."""
        self._stepping = False

    def install(self) -> None:
        """Hear of modules as they are made, and as they run: some were made before."""
        self.replace(DistributedDataParallel, "__init__", tap(self.host, _WHAT, after=self._made))
        self.replace(DistributedDataParallel, "forward", tap(self.host, _WHAT, before=self._runs))
        # Private; it prepares the reducer, and goes through the graph where unused parameters are looked for.
        self.replace(DistributedDataParallel, "_post_forward", self._timed)

    def _made(self, _: None, model: DistributedDataParallel, *__: Any, **___: Any) -> None:
        self._module_of(model).record.place = frames.user_place()

    def _module_of(self, model: DistributedDataParallel) -> _Module:
        known = self._modules.get(id(model))
        if known is None or known.ref() is not model:
            record = _described(model, len(self._all))
            known = self._modules[id(model)] = _Module(weakref.ref(model), record)
            self._all.append(record)
            self.heed()
        return known

    def _runs(self, model: DistributedDataParallel, *_: Any, **__: Any) -> None:
        """A forward pass settles whether its backward synchronizes."""
        known = self._module_of(model)
        if not model.training:
            self._evaluates(known, model)
        # `no_sync()` clears the flag; a pass without gradients has no backward.
        if torch.is_grad_enabled() and model.require_backward_grad_sync:
            self._ran[id(model)] = known
        elif torch.is_grad_enabled() and model.training and known.passes < _FIRST_PASSES:
            self._unsynchronized()
        known.passes += 1
        # torch's statistics are made in those passes only.
        if known.passes <= _FIRST_PASSES or self.host.sampling:
            _ask(known, model)

    def _unsynchronized(self) -> None:
        place = frames.user_place(1)
        if place is not None:
            one = self._aside.setdefault(place, OwnAct(kind="unsynchronized", places=[place]))
            one.times += 1

    def _evaluates(self, known: _Module, model: DistributedDataParallel) -> None:
        """Do all ranks evaluate the same model? A wrapper that sends buffers makes them the same now."""
        known.evaluated += 1
        # At numbers that are the same on all ranks, so that the digests compare.
        if model.broadcast_buffers or not is_due(known.evaluated):
            return
        named = [(name, b) for name, b in model.module.named_buffers() if b.is_floating_point() and b.numel()]
        if named:
            with torch.no_grad():
                values = digests([b for _, b in named])
            record = EvaluatedBuffers(
                id=known.record.id, number=known.evaluated, digest=hash(tuple(values)), name=named[0][0]
            )
            record.place = frames.user_place(1)
            self.host.write(record)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What follows a forward pass is the search for unused parameters, where that is on."""

        def after_forward(model: DistributedDataParallel, output: Any) -> Any:
            if not model.find_unused_parameters or not self._counts(model):
                return original(model, output)
            began = time.perf_counter()
            result = original(model, output)
            # Not in sampled steps: operators take longer there.
            record = self._module_of(model).record
            record.traversals += 1
            record.traversal_seconds += time.perf_counter() - began
            return result

        return after_forward

    def _counts(self, model: DistributedDataParallel) -> bool:
        compiling = torch.compiler.is_compiling()
        return not compiling and self.host.active and not self.host.sampling and model.require_backward_grad_sync

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """It synchronizes what has run. Within an optimizer's step (LBFGS) each must."""
        # A backward settles all that ran before it.
        ran, self._ran = self._ran, {}
        # LBFGS must synchronize each of its backwards.
        place = frames.user_place(4) if ran and not is_grad and not self._stepping else None
        if place is not None:
            for known in ran.values():
                known.synchronized[place] += 1

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """See `backward_starts`."""
        self._stepping = True

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """Count what came before, if all of it was heard."""
        self._stepping = False
        # Only if the step before was heard as well: in sampled steps some events are, in others not.
        whole, self._since = self._since == self.host.tick, self.host.tick + 1
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for known in self._modules.values():
            model = known.ref()
            if model is not None and any(id(p) in owned for p in model.parameters()):
                self._step(known, whole)

    def _step(self, known: _Module, whole: bool) -> None:
        for place, passes in known.synchronized.items() if whole else ():
            key = known.record.id, place
            line = self._lines.setdefault(key, SynchronizedPasses(id=known.record.id, place=place))
            line.steps += 1
            line.passes += passes
            # Several synchronized passes in one step: all but the last could have gone without.
            line.several += passes > 1
        known.synchronized.clear()

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        for known in self._modules.values():
            if known.waits:
                known.record.communication_seconds = statistics.median(known.waits)
        return [*self._all, *self._lines.values(), *self._aside.values()]

    def finish(self, how: str, error: BaseException | None) -> None:
        """Look at an error of the reducer's while its frames are alive."""
        for one in deciding(error):
            if isinstance(one, RuntimeError) and _UNFINISHED in str(one):
                for record in self._unfinished(one):
                    self.host.write(record)

    def _unfinished(self, error: RuntimeError) -> Iterator[UnfinishedReduction]:
        levels = levels_of(error)
        at, models = users(levels), (level.local("self") for level in levels)
        # From the traceback: the wrapper's own frame is among them.
        model = next((m for m in models if isinstance(m, DistributedDataParallel)), None)
        if at is None or model is None:
            return
        known, names = self._module_of(model).record, _without_gradient(model, str(error))
        yield UnfinishedReduction(
            place=at.place,
            message=message_of(error),
            module=known.name,
            made=known.place,
            names=names[:_MOST_NAMES],
            count=len(names),
            found_unused=model.find_unused_parameters,
        )


def _described(model: DistributedDataParallel, number: int) -> DistributedModule:
    parameters = [p for _, p in _reduced(model)]
    device = parameters[0].device if parameters else torch.device("cpu")
    return DistributedModule(
        id=number,
        name=type(model.module).__name__,
        find_unused_parameters=model.find_unused_parameters,
        static_graph=model.static_graph,
        gradient_as_bucket_view=model.gradient_as_bucket_view,
        gradient_bytes=sum(p.numel() * p.element_size() for p in parameters),
        parameters=len(parameters),
        device=str(device),
        devices=torch.cuda.device_count() if device.type == "cuda" else 0,
    )


def _reduced(model: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters whose gradients are averaged, in the reducer's order."""
    ignored: set[str] = model.parameters_to_ignore
    named = model.module.named_parameters()
    return [(name, p) for name, p in named if p.requires_grad and name not in ignored]


def _without_gradient(model: DistributedDataParallel, error: str) -> list[str]:
    found = _INDICES.search(error)
    numbers = [int(n) for n in found[1].split()] if found is not None else []
    # torch's message has indices in the reducer's order.
    names = [name for name, _ in _reduced(model)]
    return [names[n] for n in numbers if n < len(names)]


def _ask(known: _Module, model: DistributedDataParallel) -> None:
    """What torch's logger has measured of the latest pass that it looked at."""
    # Private, and only strings and numbers: without it only what the wrapper itself shows is known.
    data, record = cast(Any, model)._get_ddp_logging_data(), known.record
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    record.bucket_bytes = sum(int(n) for n in re.findall(r"\d+", str(sizes)))
    iteration = int(data.get("iteration", 0))
    # The same pass as before: nothing new was measured.
    if iteration <= known.iteration:
        return
    known.iteration = iteration
    record.looked += 1
    record.unused_passes += bool(data.get("unused_parameter_size"))
    took, hidden = data.get("backward_comm_time"), data.get("backward_compute_comm_overlap_time")
    if took and hidden is not None:
        known.waits.append(max(0, took - hidden) * _NANO)
