"""Finds frozen parts that compute, in later steps, results for rows that they have had before.

Batches that a loader or an index makes anew have the same rows in other storages, in another order, an epoch later:
what a row holds is compared, and what came out for it.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from torchvet.probes.base.costs import EACH
from torchvet.probes.base.kit import Host, Place, tensors_within, user_lines
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.numerics.half import Allowance
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.probes.time.row_digests import Rows, Unknown, digests_of, is_dense, is_plain, positions, results_of
from torchvet.recording.records.timing import RowsSeenAgain

_WHAT = "rows that frozen parts compute again"
_PARTS = 32
"""Modules that are followed at most, with those that turned out not to be frozen."""
_PLACES = 4
_WEIGHTS = 32
"""Elements of a parameter that are looked at."""
_PASSED = 8
"""Calls that gradients go through, from the first one on, after which a part is left: an adapter's frozen layer is
called so in every step, and a look at each of its calls would say nothing."""
_SECONDS, _SHARE = 0.1, 0.01
"""What looking may take: so many seconds, and a share of the time since the first call."""


class _Call(NamedTuple):
    """A call that runs: its rows' digests (None where it was not looked at), and when it began."""

    digests: torch.Tensor | None
    began: float


class _Weights:
    """The parameters and buffers of a module, found again at each call: it may be given others."""

    def __init__(self, module: nn.Module) -> None:
        # References to the tensors themselves would keep `torch.utils.swap_tensors` from its work.
        self._modules = [weakref.ref(one) for one in module.modules() if one._parameters or one._buffers]
        held = [(one, name) for one in module.modules() for name, p in one._parameters.items() if is_dense(p)]
        # Two of many: an average moves all of them.
        held.sort(key=lambda one: -getattr(*one).numel())
        self._largest = [(weakref.ref(one), name) for one, name in held[:2]]
        self._first: int | None = None

    def are_frozen(self, with_gradients: bool) -> bool:
        """Whether they are what they were at the first call, and none requires a gradient where there are any."""
        state = self._state(with_gradients)
        if self._first is None:
            self._first = state
        return state is not None and state == self._first

    def _state(self, with_gradients: bool) -> int | None:
        versions: list[int] = []
        for ref in self._modules:
            module = ref()
            if module is None:
                return None
            for held in (module._parameters, module._buffers):
                for one in held.values():
                    if one is not None:
                        if with_gradients and one.requires_grad:
                            return None
                        versions += [id(one), -1 if one.is_inference() else one._version]
        return hash((tuple(versions), *self._some()))

    def _some(self) -> Iterator[tuple[float, ...]]:
        """A few elements, for changes that versions do not tell of: those by `ema.data.mul_()`."""
        for ref, name in self._largest:
            one = getattr(ref(), name, None)
            if one is not None and is_dense(one):
                yield tuple(one[positions(one.shape, _WEIGHTS)].tolist())


@dataclass
class _Part:
    """A frozen module."""

    id: int
    module: weakref.ref[nn.Module]
    name: str
    weights: _Weights
    first: int
    """The step in which it was met."""
    places: list[Place] = field(default_factory=list)
    calls: int = 0
    passed: int = 0
    """Calls that gradients went through."""
    skipped: int = 0
    """Calls that there was no time to look at: of which of the two kinds they are is not known."""
    seconds: float = 0.0
    timed: int = 0
    row_bytes: int = 0
    left: bool = False
    """Whether it is not looked at any more: it changed, or its calls cannot be compared."""
    written: bool = False
    rows: Rows = field(default_factory=Rows)


class RowsSeenAgainProbe(TimeWatcher):
    """Rows that a frozen part computes again.

    Sampled steps show which modules are frozen. Each call of those is looked at from then on, within a share of the
    run's time.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._parts: dict[int, _Part] = {}
        """By the module's identity."""
        self._calls = ModuleCalls()
        self._depth = 0
        """Calls of modules that are under way, from the outermost frozen one on."""
        self._allowance: Allowance | None = None

    def install(self) -> None:
        """Hear the calls of modules in sampled steps."""
        self.host.ledger.asides.append(ModuleHooks(before=self._starts, after=self._ended))

    def remove(self) -> None:
        """See `Watcher`."""
        self._calls.close()
        super().remove()

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """No call is under way in a window that has yet to begin."""
        self._depth = 0

    def restarted(self) -> None:
        """Steps are counted anew."""
        for part in self._parts.values():
            part.first, part.calls, part.timed, part.seconds, part.rows = 0, 0, 0, 0.0, Rows()
            part.skipped = 0

    def _starts(self, module: nn.Module, args: Any) -> None:
        if not self.host.active:
            return
        if self._depth:
            self._depth += 1
        elif _is_frozen(module):
            self._depth = 1
            with self.host.looking(_WHAT, EACH):
                self._met(module)

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def _met(self, module: nn.Module) -> None:
        """A frozen module is called in a sampled step."""
        key = id(module)
        part = self._parts.get(key)
        if part is None or part.module() is not module:
            if len(self._parts) >= _PARTS or not self._calls.can_follow(module):
                return
            name, step = type(module).__name__, self.host.clock.main_steps
            part = _Part(len(self._parts), weakref.ref(module), name, _Weights(module), step)
            self._parts[key] = part
            self._calls.follow(module, partial(self._called, part), partial(self._returned, part))
        for place in [] if part.left else user_lines(sys._getframe(2), 1):
            if place not in part.places and len(part.places) < _PLACES:
                part.places.append(place)

    def _called(self, part: _Part, args: Any, kwargs: Any) -> _Call | None:
        """A frozen module is called: what it is given."""
        # Asked first, as this runs at each call of every step; nothing is known of the first call's budget.
        if self._allowance is not None and not self._allowance.left():
            part.skipped += 1
            return None
        module, host = part.module(), self.host
        # In graphs that are being traced the look itself would become a part.
        tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        if module is None or not host.active or tracing or self._foreign():
            return None
        call = None
        with host.looking(_WHAT, EACH):
            call = self._begun(part, torch.is_grad_enabled(), args, kwargs)
        return call

    def _begun(self, part: _Part, with_gradients: bool, args: Any, kwargs: Any) -> _Call | None:
        """A call begins; None if gradients go through it."""
        with private.DisableTorchFunction():
            if with_gradients and any(map(_wants_gradient, tensors_within([args, kwargs]))):
                part.passed += 1
                if not part.calls and part.passed >= _PASSED:
                    self._leave(part)
                return None
        part.calls += 1
        # From the first call on: importing torch is no time to spend from.
        allowance = self._allowance = self._allowance or Allowance(_SECONDS, _SHARE)
        began = time.thread_time()
        digests = self._quietly(part, self._compared, part, with_gradients, args, kwargs)
        allowance.spend(began)
        return None if part.left else _Call(digests, time.perf_counter())

    def _returned(self, part: _Part, call: _Call, output: Any) -> None:
        """It has returned."""
        if not self.host.sampling:
            part.seconds += time.perf_counter() - call.began
            part.timed += 1
        if call.digests is None:
            return
        with self.host.looking(_WHAT, EACH):
            began = time.thread_time()
            made = [one for one in tensors_within(output) if is_plain(one) and one.shape[:1] == (len(call.digests),)]
            part.row_bytes = sum(one.nbytes for one in made) // len(call.digests)
            self._quietly(part, self._keep, part.rows, call.digests, made)
            if self._allowance is not None:
                self._allowance.spend(began)

    def _compared(self, part: _Part, with_gradients: bool, args: Any, kwargs: Any) -> torch.Tensor | None:
        """The digests of a call's rows."""
        if not part.weights.are_frozen(with_gradients):
            raise Unknown
        return digests_of(args, kwargs)

    def _unchanged(self, part: _Part) -> None:
        if part.calls and not part.weights.are_frozen(False):
            raise Unknown

    def _keep(self, rows: Rows, digests: torch.Tensor, made: list[torch.Tensor]) -> None:
        """Compare what came out for a call's rows, and keep it."""
        if not made or not rows.add(self.host.clock.main_steps, digests, *results_of(made[0])):
            raise Unknown

    def _quietly(self, part: _Part, work: Callable[..., Any], *given: Any) -> Any:
        """Do some arithmetic that neither autograd nor modes of the program's hear of; a part that cannot be compared
        any more is left."""
        try:
            # What is kept is changed later, perhaps outside of an inference mode that is on now.
            with torch.inference_mode(False), torch.no_grad(), private.DisableTorchFunction():
                return work(*given)
        except Unknown:
            self._leave(part)
            return None

    def _leave(self, part: _Part) -> None:
        """Nothing more is said of a part."""
        # What came again until then is no evidence any more.
        part.left, part.rows = True, Rows()
        self._calls.forget(next(key for key, one in self._parts.items() if one is part))

    def _foreign(self) -> bool:
        """Whether a mode of somebody else's is on, or a transform of `torch.func`."""
        if private.functorch_level() is not None:
            return True
        return private.modes_on() > 0 and any(mode is not self.host.ledger for mode in private.dispatch_modes())

    def totals(self, tick: int) -> Iterator[RowsSeenAgain]:
        """Frozen parts whose rows came again."""
        clock = self.host.clock
        # A program that only runs a model has no steps between which results could be kept.
        if clock.level not in ("training", "manual", "backward"):
            return
        for part in self._parts.values():
            # Where calls are not looked at any more, a late change would not be seen either.
            if not part.left and part.module() is not None:
                self._quietly(part, self._unchanged, part)
            rows, again = part.rows.of_calls(slice(None))
            # Of one that was left meanwhile, what was written is taken back: a record without rows.
            if not part.written and not (again and part.places and part.timed):
                continue
            part.written = True
            # Those that were skipped are of both kinds as the others are.
            calls = part.calls + round(part.skipped * part.calls / max(1, part.calls + part.passed))
            later = part.rows.of_calls(slice(len(part.rows.counts) // 2, None))
            yield RowsSeenAgain(
                id=part.id,
                module=part.name,
                places=part.places,
                steps=max(1, clock.main_steps - part.first),
                calls=calls,
                looked=sum(one[0] for one in part.rows.counts),
                seconds=part.seconds / max(1, part.timed) * calls,
                rows=rows,
                again=again,
                later=later[0],
                later_again=later[1],
                distinct=part.rows.distinct,
                row_bytes=part.row_bytes,
            )


def _wants_gradient(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad


def _is_frozen(module: nn.Module) -> bool:
    """Whether a module with parameters runs without gradients, or has none that requires one."""
    off = not torch.is_grad_enabled()
    parameter = None
    for parameter in module.parameters():
        if off:
            return True
        if parameter.requires_grad:
            return False
    return parameter is not None
