"""Watches steps on parameters in half precision: which updates round away, and which make something not finite."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from torchvet.probes.base.kit import Host, Optimizer, Place, Record, Watcher, frames
from torchvet.probes.internals.finite import readable, which_not
from torchvet.probes.numerics import half
from torchvet.recording.records.numeric import HalfOptimizer

_WITNESSES = 16
"""Parameters of an optimizer whose elements are looked at, evenly spread."""
_EVERY = 4
"""Steps at first that are looked at each; then those at powers of two and the one after."""


class _Witness:
    """The sampled elements of one parameter: as they were first, and which have been moved or had no gradient since."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.ref = weakref.ref(parameter)
        self.sample = half.Sample(parameter)
        self.first: torch.Tensor | None = None
        self.always: torch.Tensor | None = None
        self.before: torch.Tensor | None = None
        self.pushed: torch.Tensor | None = None


class _State:
    """What has been seen of one optimizer."""

    def __init__(self, optimizer: Optimizer, made_at: Place | None) -> None:
        self.ref = weakref.ref(optimizer)
        self.made_at = made_at
        self.steps = 0
        self.witnesses: list[_Witness] = []
        self.looking = False
        self.sound: list[torch.Tensor] = []
        self.record: HalfOptimizer | None = None
        self.other = False
        """Whether its parameters are not in half precision, as was seen at its first step."""


class HalfOptimizers(Watcher):
    """Optimizers on parameters in half precision."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._states: dict[int, _State] = {}
        self.ignored = frozenset(["optimizer_ended"])

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Where was it made?"""
        # Every step from here on, until its first has told what its parameters are.
        self.hear_in_samples()
        self._states[id(optimizer)] = _State(optimizer, frames.user_place(3))

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Before a step that is looked at: values and gradients of the sampled elements."""
        state = self._states.get(id(optimizer))
        # Made before the watch, or at the address of one that has died.
        if state is None or state.ref() is not optimizer:
            state = self._states[id(optimizer)] = _State(optimizer, None)
        state.steps += 1
        if state.other:
            return
        if state.steps == 1:
            self._begin(optimizer, state)
            # As long as no optimizer has half parameters its steps outside of samples cost nothing.
            if all(one.other for one in self._states.values()):
                self.hear_in_samples("optimizer_starts")
        steps = state.steps
        # The step after a power of two as well: two looks in a row show whether the same elements stay.
        due = steps <= _EVERY or not steps & (steps - 1) or not (steps - 1) & (steps - 2)
        state.looking = due and not state.other
        if state.looking:
            self._before(optimizer, state)

    def _begin(self, optimizer: Optimizer, state: _State) -> None:
        parameters = [p for g in optimizer.param_groups for p in g["params"]]
        halves = [p for p in parameters if p.dtype in half.HALF and readable(p)]
        # What such an optimizer rounds away it keeps elsewhere: nothing is lost.
        if not halves or _compensated(optimizer):
            state.other = True
            return
        self.heed()
        self.hear_in_samples()
        step = max(1, len(halves) // _WITNESSES)
        state.witnesses = [_Witness(p) for p in halves[::step][:_WITNESSES]]
        state.record = record = _record_of(optimizer, halves[0].dtype)
        record.place, record.step_place = state.made_at, frames.user_place()
        record.parameters, record.of = len(halves), len(parameters)

    def _before(self, optimizer: Optimizer, state: _State) -> None:
        rates = {id(p): float(g.get("lr", 1.0)) for g in optimizer.param_groups for p in g["params"]}
        for witness in state.witnesses:
            parameter = witness.ref()
            witness.before = witness.pushed = None
            # Without a gradient there was nothing to round away.
            if parameter is None or parameter.grad is None or parameter.grad.layout is not torch.strided:
                continue
            gradient = witness.sample.of(parameter.grad, parameter)
            witness.before = witness.sample.read()
            # A learning rate of 0 (warm-up) moves nothing, and loses nothing.
            witness.pushed = (gradient != 0) & gradient.isfinite() & (rates.get(id(parameter), 1.0) != 0)
            if witness.first is None and witness.before is not None:
                witness.first, witness.always = witness.before, torch.ones_like(witness.pushed)
        # An `eps` that is 0 in half precision spoils weights at the first step, so later ones are not looked through.
        if state.record is not None and state.steps <= _EVERY:
            state.sound = self._sound(optimizer)

    @staticmethod
    def _sound(optimizer: Optimizer) -> list[torch.Tensor]:
        """The half parameters that are finite, as are their gradients."""
        halves = (p for group in optimizer.param_groups for p in group["params"] if p.dtype in half.HALF)
        parameters = [p for p in halves if p.grad is not None and readable(p) and readable(p.grad)]
        bad = {*which_not(parameters), *which_not([p.grad for p in parameters])}
        return [p for i, p in enumerate(parameters) if i not in bad]

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """After it: what has moved, and what is not finite any more."""
        state = self._states.get(id(optimizer))
        if state is None or state.record is None:
            return
        record = state.record
        record.steps = state.steps
        if not state.looking:
            return
        state.looking = False
        record.looks += 1
        for witness in state.witnesses:
            self._after(witness, record)
        record.first, record.last = record.first or state.steps, state.steps
        self._count_stuck(state, record)
        # The list holds parameters: it must not outlive the step.
        sound, state.sound = state.sound, []
        spoilt = which_not(sound)
        # The first time is the cause; afterwards everything follows from it.
        if spoilt and record.spoilt_at is None:
            names = self.host.known.parameter_names()
            record.spoilt, record.spoilt_at = len(spoilt), state.steps
            record.spoilt_names = [names.get(id(sound[i]), "a parameter") for i in spoilt[:8]]
            self.host.write(record)

    @staticmethod
    def _after(witness: _Witness, record: HalfOptimizer) -> None:
        after = witness.sample.read()
        if witness.before is None or witness.pushed is None or after is None:
            return
        same = after == witness.before
        record.updates += int(witness.pushed.sum())
        record.lost += int((same & witness.pushed).sum())
        record.zero_gradients += int((~witness.pushed).sum())
        assert witness.always is not None and witness.first is not None
        # Not in place: see `half_sums`.
        witness.always = witness.always & witness.pushed

    @staticmethod
    def _count_stuck(state: _State, record: HalfOptimizer) -> None:
        record.followed = record.stuck = 0
        for witness in state.witnesses:
            now = witness.sample.read()
            if witness.always is None or witness.first is None or now is None:
                continue
            record.followed += int(witness.always.sum())
            record.stuck += int((witness.always & (now == witness.first)).sum())

    def totals(self, tick: int) -> Iterable[Record]:
        """What was seen of each."""
        return [s.record for s in self._states.values() if s.record is not None and s.record.looks]


def _record_of(optimizer: Optimizer, dtype: torch.dtype) -> HalfOptimizer:
    """What is known of an optimizer before its first step: by the groups that have half parameters."""
    groups = [g for g in optimizer.param_groups if any(p.dtype in half.HALF for p in g["params"])]
    # The smallest is the first that rounds to 0.
    eps = min((float(g["eps"]) for g in groups if isinstance(g.get("eps"), (int, float))), default=None)
    record = HalfOptimizer(optimizer=type(optimizer).__name__, dtype=half.NAMES[dtype], steps=0, eps=eps)
    record.fused = any(bool(g.get("fused")) for g in groups)
    return record


def _compensated(optimizer: Optimizer) -> bool:
    """Whether its parameter groups say that lost parts of updates are kept: Kahan summation, stochastic rounding."""
    # By the words of their options: each library has its own class for such optimizers.
    words = ("kahan", "stochastic", "compens", "master")
    options = (*optimizer.defaults.items(), *vars(optimizer).items())
    return any(value and any(w in str(name).lower() for w in words) for name, value in options)
