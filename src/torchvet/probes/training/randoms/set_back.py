"""Looks for trainings whose global random state is set back, so that they draw the same numbers again and again.

The state is read only after a call that sets it: at the update of the two steps that follow. What counts is that an
earlier update of the same optimizer had begun from the same state, with other weights.
"""

from __future__ import annotations

import random
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import msgspec
import torch
from torch.utils import data

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Place, Record, SiteWatcher, frames, outward, tap
from torchvet.probes.internals._importlib_bootstrap_named import in_c
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics.half import Allowance
from torchvet.probes.session.import_hook import when_imported
from torchvet.probes.training.randoms.states import STATES, Caller, caller, key_of
from torchvet.recording.records.optimizers import RepeatedRandoms

_WHAT = "random states that are set back"
_HEARD = ("batch_asked", "batch_got", "optimizer_starts")
_OFTEN = 8
"""Calls after which the events of steps are heard for good: to stop and start costs more than to hear them."""
_STATES, _SITES, _SEEDS, _OPTIMIZERS = 4096, 64, 256, 16
_WEIGHTS, _FEW = 3, 8
"""Weights that tell whether a training goes on, and how many numbers of each."""
_SAMPLERS = (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)

_Witness = tuple[tuple[float, ...], ...]
_Key = tuple[Place, str, int]


@dataclass
class _Earlier:
    """A state from which an update has begun: with which weights, and how many steps followed at most."""

    weights: _Witness
    longest: int = 0


@dataclass
class _Stretch:
    """The steps since a state was looked at."""

    earlier: _Earlier
    began: int
    record: RepeatedRandoms | None

    def repeated(self, now: int) -> int:
        """How many of them were like earlier ones."""
        return min(now - self.began, self.earlier.longest) if self.record is not None else 0


@dataclass
class _History:
    """The states from which an optimizer's updates have begun, by generator."""

    ref: weakref.ref[Optimizer]
    number: int
    seen: dict[str, dict[int, _Earlier]] = field(default_factory=dict)
    stretch: dict[str, _Stretch] = field(default_factory=dict)

    def end(self, generator: str, now: int) -> None:
        """A stretch of steps has ended."""
        last = self.stretch.pop(generator, None)
        if last is not None:
            if last.record is not None:
                last.record.steps += last.repeated(now)
            last.earlier.longest = max(last.earlier.longest, now - last.began)


@dataclass
class _Set:
    """A call that has set a generator, until two updates have been looked at."""

    place: Place
    inner: Place | None
    function: str
    led_to: int | None
    """The state to which it led, where that is known."""
    under_way: tuple[int, int]
    first: dict[int, int] = field(default_factory=dict)
    """By optimizer: the state at its first update since."""
    records: dict[int, RepeatedRandoms] = field(default_factory=dict)
    """By optimizer: where it is to be counted that training draws."""
    asked: int | None = None
    got: int | None = None
    iterator: int | None = None
    """The loader's iterator that gave a batch last, since the last update."""
    drew: set[int] = field(default_factory=set)
    """Iterators that have drawn, to shuffle or to change samples."""
    evaluated: bool = False


class SetBack(SiteWatcher[_Key, RepeatedRandoms]):
    """Random states that a training comes back to."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sets: dict[str, _Set] = {}
        """By generator: the call that is looked at."""
        self._histories: dict[int, _History] = {}
        self._led_to: dict[tuple[str, int], int] = {}
        self._last: dict[str, tuple[int, int | None]] = {}
        """By generator: after which step it was set last, and by which seed."""
        self._rests = self._reading = False
        self._calls = 0
        self._allowance = Allowance(0.1, 0.01)
        self._end_wait: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Hear what sets the global generators."""
        for owner in (torch, torch.random):
            for name in ("manual_seed", "set_rng_state"):
                self.replace(owner, name, self._tap("torch", f"torch.{name}"))
        for name in ("seed", "setstate"):
            self.replace(random, name, partial(self._in_place, "random", name))
        self._end_wait = when_imported("numpy.random", self._numpy_is_here)

    def _tap(self, generator: str, function: str) -> Callable[[Any], Any]:
        return tap(self.host, _WHAT, after=partial(self._was_set, generator, function))

    def _in_place(self, generator: str, name: str, original: Any) -> Any:
        ours = self._tap(generator, f"{generator}.{name}")(original)
        # Pickled by the name that it is found by: the original is a method of a hidden object.
        ours.__qualname__ = name
        return ours

    def _numpy_is_here(self, module: ModuleType) -> None:
        for name in ("seed", "set_state"):
            self.replace(module, name, partial(self._in_c, name))

    def _in_c(self, name: str, original: Any) -> Any:
        return in_c(self._tap("numpy", f"numpy.random.{name}")(original), original)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._end_wait()
        super().remove()

    def _was_set(self, generator: str, function: str, _: Any, *args: Any, **kwargs: Any) -> None:
        """A generator has another state now."""
        # First: a data set may seed for each of its samples, and to find the caller takes most of a look.
        if not self._allowance.left():
            self._sets.pop(generator, None)
            return
        began = time.thread_time()
        by = caller(sys._getframe(2))
        if by == "torch":
            self._allowance.spend(began)
            return
        step = self.host.clock.main_steps
        given = next(iter((*args, *kwargs.values())), None)
        seed = given if type(given) is int else None
        before, self._last[generator] = self._last.get(generator), (step, seed)
        old = self._sets.pop(generator, None)
        # A sample's own number as a seed: it is to be the same each time.
        of_sample = self._reading and before is not None and before[1] != seed
        if of_sample or not isinstance(by, Caller):
            self._allowance.spend(began)
            return
        again = before is not None and before[0] == step and old is not None
        led_to = self._state_of(generator, seed, rare=not again)
        self._sets[generator] = one = _Set(
            frames.place_of(by.frame),
            frames.place_of(by.inner) if by.inner is not None else None,
            function,
            led_to,
            under_way=by.key,
        )
        if old is not None:
            one.drew = old.drew
        # Within the reading of a batch: what each sample draws by a seed of its own is no repetition.
        if before is not None and before[1] == seed is not None:
            one.asked = led_to
        self._calls += 1
        self._wake()
        self._allowance.spend(began)

    def _wake(self) -> None:
        if self._rests:
            self._rests = False
            self.hear_in_samples()

    def _state_of(self, generator: str, seed: int | None, *, rare: bool) -> int | None:
        """The state that a seed has led to. Of many calls in a step only those with known seeds have one."""
        known = self._led_to.get((generator, seed)) if seed is not None else None
        if known is None and rare:
            known = STATES[generator]()
            if seed is not None and len(self._led_to) < _SEEDS:
                self._led_to[generator, seed] = known
        return known

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """What is drawn between here and the next update may have been drawn by an evaluation."""
        if not training:
            for one in self._sets.values():
                one.evaluated = True

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """The states before a batch is read."""
        self._reading = True
        if self._sets and self._allowance.left():
            began = time.thread_time()
            for generator, one in self._sets.items():
                one.asked = STATES[generator]()
                if generator == "torch" and _shuffles_ahead(iterator):
                    one.drew.add(id(iterator))
            self._allowance.spend(began)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """The states after it."""
        self._reading = False
        if self._sets and self._allowance.left():
            began = time.thread_time()
            for generator, one in self._sets.items():
                one.got, one.iterator = STATES[generator](), id(iterator)
                if one.asked is not None and one.asked != one.got:
                    one.drew.add(id(iterator))
            self._allowance.spend(began)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Has an update begun from here before?"""
        if not self._sets:
            if not self._rests and self._calls < _OFTEN:
                self._rests = True
                self.hear_in_samples(*_HEARD)
            return
        history = self._history(optimizer)
        if history is None or not self._allowance.left():
            self._sets.clear()
            return
        began = time.thread_time()
        for generator, one in [*self._sets.items()]:
            now = STATES[generator]()
            first = one.first.get(history.number)
            if first is None:
                one.first[history.number] = now
                self._look(history, optimizer, generator, one, now)
            if _has_drawn(one, now, first) and history.number in one.records:
                one.records.pop(history.number).drawn += 1
            if first is not None:
                del self._sets[generator]
            one.got = one.iterator = None
            one.evaluated = False
        self._allowance.spend(began)

    def _history(self, optimizer: Optimizer) -> _History | None:
        known = self._histories.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            if known is None and len(self._histories) >= _OPTIMIZERS:
                return None
            numbers = [one.number for one in self._histories.values()]
            known = self._histories[id(optimizer)] = _History(weakref.ref(optimizer), max(numbers, default=-1) + 1)
        return known

    def _look(self, history: _History, optimizer: Optimizer, generator: str, one: _Set, now: int) -> None:
        """The first update after a call."""
        step = self.host.clock.main_steps
        history.end(generator, step)
        key = (one.place, generator, history.number)
        record = self.sites.get(key)
        if record is None:
            if len(self.sites) >= _SITES:
                return
            record = self.sites[key] = RepeatedRandoms(one.place, generator, one.function, history.number, one.inner)
        record.times += 1
        weights, seen = _weights(optimizer), history.seen.setdefault(generator, {})
        earlier = seen.get(now)
        if earlier is not None and weights and earlier.weights == weights:
            # A trial begins anew from the same weights: it is to have the same numbers.
            seen.clear()
            earlier = None
        if earlier is None:
            if len(seen) < _STATES:
                seen[now] = earlier = _Earlier(weights)
                history.stretch[generator] = _Stretch(earlier, step, None)
            return
        earlier.weights = weights
        history.stretch[generator] = _Stretch(earlier, step, record)
        record.repeated += 1
        under_way = _is_under_way(one.under_way)
        record.under_way += under_way
        # With a loader it was not the order of the samples.
        by_hand = one.iterator is None and not one.evaluated and one.led_to not in (None, now)
        record.drawn_before += under_way and by_hand
        one.records[history.number] = record

    def totals(self, tick: int) -> Iterable[Record]:
        """What has repeated, with the steps since the last look."""
        now = self.host.clock.main_steps
        under_way: dict[int, int] = {}
        for last in (last for history in self._histories.values() for last in history.stretch.values()):
            if last.record is not None:
                under_way[id(last.record)] = under_way.get(id(last.record), 0) + last.repeated(now)
        for one in self.sites.values():
            if one.repeated:
                yield msgspec.structs.replace(one, steps=one.steps + under_way.get(id(one), 0), of=now)


def _has_drawn(one: _Set, now: int, first: int | None) -> bool:
    """Whether the training has drawn before this update: while a batch was read, in the pass after it, or since the
    last update."""
    if one.iterator is not None:
        return one.iterator in one.drew or one.got != now
    # Without a loader nobody knows where a step begins, but with the last update. A call in between begins anew: what
    # is drawn after it may be all that it was for.
    return first is not None and first != now and not one.evaluated


def _is_under_way(call: tuple[int, int]) -> bool:
    return any(key_of(frame) == call for frame in outward(sys._getframe(1)))


def _shuffles_ahead(iterator: Any) -> bool:
    """Whether workers have been given the first orders, drawn from the global state, before a batch was asked for."""
    # Private: see `private.ATTRIBUTES`.
    if not getattr(iterator, "_num_workers", None) or getattr(iterator, "_num_yielded", None) != 0:
        return False
    batches = getattr(iterator, "_index_sampler", None)
    sampler = getattr(batches, "sampler", batches)
    return type(sampler) in _SAMPLERS and getattr(sampler, "generator", None) is None


def _weights(optimizer: Optimizer) -> _Witness:
    """A few numbers of a few weights that are trained."""
    trained = [p for group in optimizer.param_groups for p in group["params"] if gradient_of(p) is not None]
    few = trained[:: max(1, len(trained) // _WEIGHTS)][:_WEIGHTS]
    plain = [plain_values(parameter) for parameter in few]
    return tuple(tuple(one.flatten()[:_FEW].tolist()) for one in plain if one is not None)
