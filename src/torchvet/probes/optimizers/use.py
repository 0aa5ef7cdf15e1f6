"""Watches what each optimizer steps on: gradients left over, none at all, parameters that nobody steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of, is_readable
from torchvet.probes.base.kit import Host, Optimizer, Place, Record, StepKind, Watcher, frames
from torchvet.probes.base.schedule import Checkups
from torchvet.probes.optimizers.frozen_parameters import FreezingLines, Frozen
from torchvet.probes.optimizers.gradient_history import GradientHistory
from torchvet.probes.optimizers.owners_called import OwnersCalled
from torchvet.probes.optimizers.stalled_optimizers import Stalled
from torchvet.probes.optimizers.unowned_gradients import UnownedGradients
from torchvet.recording.records.optimizers import FIRST_STEPS, NeverStepped, OptimizerUse
from torchvet.recording.records.training import SparseGradient

_MOST_PASSES = 64
"""Backward passes after which gradients are looked for: an optimizer may never step."""
_PASSED_OVER = ("backward_starts", "backward_ended", "optimizer_starts", "optimizer_ended")
_WITNESSES = 3
"""Parameters of an optimizer whose gradients are looked at; the smallest that have one."""
_SMALL = 1 << 16


@dataclass
class _Built:
    """An optimizer that one line may build again and again over the same parameters."""

    first: weakref.ref[torch.Tensor]
    """A parameter."""
    use: OptimizerUse
    left: tuple[int, torch.Tensor] | None = None
    """Its version and a few of its values after the last step, if the optimizer has state to lose."""

    def follows(self, last: _Built) -> None:
        """It takes the place of another. Do the weights go on from where that one left them?"""
        use, before, parameter = self.use, last.use, self.first()
        use.rebuilt, use.rebuilt_steps = before.rebuilt + 1, before.rebuilt_steps + before.steps
        use.continued = before.continued
        # The version tells of all but `.data`.
        if parameter is not None and last.left is not None and last.left[0] == parameter._version:
            # `.data` may have been written to, which leaves the version as it is.
            use.continued += torch.equal(last.left[1], _few(parameter))

    def stepped(self, optimizer: Optimizer) -> None:
        """A step has ended."""
        parameter = self.first()
        kept = optimizer.state.get(parameter, {}) if parameter is not None else {}
        plain = parameter is not None and parameter.layout is torch.strided and parameter.numel() > 0
        if parameter is not None and plain and any(isinstance(value, torch.Tensor) for value in kept.values()):
            self.left = parameter._version, _few(parameter).clone()


def _few(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().as_strided((1,), (1,))


@dataclass
class _State:
    ref: weakref.ref[Optimizer]
    use: OptimizerUse
    backwards: int = 0
    fresh_start: bool = False
    watched: bool = False
    had_gradient: bool = False
    left_gradient: bool = False
    """Whether a parameter had a gradient when the last backward returned."""
    looked_after: int = 0
    """The backward calls after which that was asked."""
    begun: tuple[weakref.ref[torch.Tensor], int, Place | None] | None = None
    """A parameter and its version, when it had its first gradient, and the line of the backward call."""
    changed: bool = False
    """Whether that parameter has been written to since. Its last answer holds when it has died: a model that is gone at
    the end was not trained by that."""
    told: bool = False
    """Whether a record says that it has never stepped."""
    built: _Built | None = None
    history: GradientHistory = field(default_factory=GradientHistory)
    looked: int = 0
    """Its steps when its parameters were looked at last."""
    never: set[int] = field(default_factory=set)
    asked: frozenset[int] = frozenset()
    """The parameters that required a gradient when it was first met."""
    frozen: Frozen = field(default_factory=Frozen)
    gradients: list[weakref.ref[torch.UntypedStorage]] = field(default_factory=list)
    """Storages of a few gradients after the last step."""
    versions: dict[int, int] = field(default_factory=dict)
    """How often a few gradients had been written to by then, by parameter."""
    names: dict[int, str] = field(default_factory=dict)
    """Of the parameters in `never`, as long as somebody knew them."""

    def look_at_first(self) -> None:
        """Has the first parameter that had a gradient been written to?"""
        weight = self.begun[0]() if self.begun is not None else None
        if self.begun is not None and weight is not None:
            self.changed = weight._version != self.begun[1]


class OptimizerProbe(Watcher):
    """What optimizers step on. They are held weakly."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known = host.known
        self._states: dict[int, _State] = {}
        self._numbered = 0
        self._passes = 0
        self._checkups = Checkups()
        self._ownership = UnownedGradients(host.known, self._place_of)
        self._owners = OwnersCalled(host)
        self._freezing = FreezingLines(host)
        self._stalled = Stalled()
        self._built: dict[Place, _Built] = {}
        """By line: the last optimizer made there."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        place = frames.user_place(3)
        state = self._state(optimizer, place)
        self._settled()
        first = next((p for g in optimizer.param_groups for p in g["params"]), None)
        if place is not None and first is not None:
            state.built = _Built(weakref.ref(first), state.use)
            last = self._built.get(place)
            if last is not None and last.first() is first:
                state.built.follows(last)
                self._settled()
            self._built[place] = state.built

    def _state(self, optimizer: Optimizer, place: Place | None = None) -> _State:
        state = self._states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            # Its address may have been another's, which then has no state any more: their number is no count.
            # Written now: at the end nothing would be known of the one that has died.
            if state is not None and state.use.steps:
                self.host.write(self._use(state, {}))
            kind, parameters = type(optimizer).__name__, [p for g in optimizer.param_groups for p in g["params"]]
            use = OptimizerUse(id=self._numbered, name=kind, place=place, step_place=None, steps=0)
            use.parameters = len(parameters)
            use.history, use.history_bytes = _history(optimizer, parameters)
            use.history_known = bool(use.history) and isinstance(optimizer, torch.optim.LBFGS)
            state = _State(weakref.ref(optimizer), use)
            self._numbered += 1
            # Parameters leave this set as they are seen with a gradient.
            state.never = {id(p) for p in parameters if p.requires_grad}
            state.asked = frozenset(state.never)
            self._states[id(optimizer)] = state
            self._known.add_optimizer(optimizer, self.host.tick)
        return state

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Before gradients flow: which optimizers start from cleared gradients?"""
        if is_grad:  # it adds to no `.grad`: it neither needs cleared gradients nor spoils them
            return
        watching = self.host.sampling
        for state in self._states.values():
            state.backwards += 1
            if state.left_gradient:
                self._look_for_dropped(state)
            # The first pass of a step tells; later ones of the step add to it on purpose.
            if state.fresh_start or not (watching or state.use.steps < FIRST_STEPS):
                continue
            optimizer = state.ref()
            if optimizer is not None and _is_readable(optimizer):
                state.watched = True
                state.fresh_start = _cleared(optimizer) or (state.backwards == 1 and _rewritten(optimizer, state))

    def _settled(self) -> None:
        """After the first steps of every optimizer only those that are sampled are looked at."""
        early = any(state.use.steps < FIRST_STEPS for state in self._states.values())
        rebuilt = any(state.use.rebuilt for state in self._states.values())
        # An optimizer that is made again and again is never beyond its first steps.
        self.pass_over(*(() if early or rebuilt else _PASSED_OVER))

    def steps_passed(self, key: int, steps: int) -> None:
        """See `Watcher`."""
        state = self._states.get(key)
        if state is None:
            return
        state.use.steps += steps
        optimizer = state.ref()
        if optimizer is not None:
            self._known.stepped(optimizer)

    @staticmethod
    def _look_for_dropped(state: _State) -> None:
        """Gradients were there when the last backward returned, and no step has come since."""
        optimizer = state.ref()
        if optimizer is not None and _is_readable(optimizer) and _cleared(optimizer):
            state.use.dropped += 1

    def backward_ended(self, is_grad: bool) -> None:
        """After the passes of the first steps: did they leave gradients? Whoever finds none later has cleared them."""
        if is_grad:
            return
        self._passes += 1
        early = [s for s in self._states.values() if s.use.steps < FIRST_STEPS and s.ref() is not None]
        for state in early:
            optimizer = state.ref()
            state.left_gradient = optimizer is not None and any(_gradients(optimizer))
            state.looked_after += 1
            if state.begun is None and state.left_gradient and optimizer is not None:
                first, _ = _having(optimizer)[0]
                state.begun = weakref.ref(first), first._version, frames.user_place(3)
            state.look_at_first()
        # What this event is for concerns the first steps alone.
        if self._passes >= _MOST_PASSES or (self._states and not early):
            self.ignored = frozenset(["backward_ended"])
            self.heeding()
            for state in self._states.values():
                state.left_gradient = False

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Before a step: is there any gradient to step on?"""
        state = self._state(optimizer)
        # `grad = new` instead of adding to it: a fresh start.
        if state.gradients and any(ref() is None for ref in state.gradients):
            # The gradient of last time is gone: whoever assigned another did not add to it.
            state.fresh_start = True
        if state.use.step_place is None:
            state.use.step_place = frames.user_place(3)
        if state.use.steps < FIRST_STEPS or state.watched:
            state.had_gradient = _note_gradients(optimizer, state)
            state.history.look_for_zero(optimizer)
            # Backward left gradients, and the step finds none.
            state.use.thrown += state.left_gradient and not state.had_gradient

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """After a step: closures (LBFGS) run their backward inside it, so judge here."""
        state = self._state(optimizer)
        self._known.stepped(optimizer)
        state.use.steps += 1
        if state.use.steps == FIRST_STEPS:
            self._settled()
        if state.use.rebuilt and state.built is not None:
            state.built.stepped(optimizer)
        # `<=`: the count has gone up by this very step.
        if state.use.steps <= FIRST_STEPS or state.watched:
            _judge(optimizer, state)
        if state.use.steps < FIRST_STEPS or state.watched:
            state.use.trainable = sum(p.requires_grad for g in optimizer.param_groups for p in g["params"])
            state.gradients = _witnesses(optimizer)
            state.versions = {id(p): g._version for p, g in _having(optimizer)}
        elif state.gradients or state.versions:
            state.gradients, state.versions = [], {}
        state.backwards = 0
        state.watched = state.fresh_start = state.had_gradient = state.left_gradient = False

    def settle(self, tick: int, kind: StepKind) -> None:
        """At the end of some steps: who owns what?"""
        if not (self._checkups.due(tick) or self.host.sampling):
            return
        # Ownership first, for all optimizers together.
        self._ownership.look(self._never())
        for state in self._states.values():
            optimizer = state.ref()
            if optimizer is None or not _is_readable(optimizer):
                continue
            self._stalled.look(optimizer, state.use, tick)
            if state.use.steps > state.looked:
                self._look_at(state, optimizer)
        self._owners.listen(self._suspects())
        self._freezing.listen({key for state in self._states.values() for key in state.frozen.since})

    def _suspects(self) -> set[int]:
        """Parameters without gradients of optimizers that have stepped for a while."""
        suspects = set()
        for state in (s for s in self._states.values() if s.use.steps >= FIRST_STEPS):
            optimizer = state.ref()
            stopped = state.history.stopped(optimizer, state.use.steps) if optimizer is not None else []
            suspects |= state.never | {id(p) for p in stopped}
        return suspects

    def remove(self) -> None:
        """Leave torch as it was."""
        self._owners.end()
        self._freezing.end()
        super().remove()

    def _sparse_gradients(self, tick: int) -> list[SparseGradient]:
        """Entries and bytes of every sparse gradient there is."""
        names = self._known.parameter_names()
        found = []
        for parameter in self._known.parameters():
            gradient = gradient_of(parameter)
            if gradient is not None and gradient.layout is torch.sparse_coo:
                size = sum(x.untyped_storage().nbytes() for x in (gradient._indices(), gradient._values()))
                name = names.get(id(parameter), "parameter")
                found.append(SparseGradient(tick=tick, name=name, entries=gradient._nnz(), bytes=size))
        return found

    def totals(self, tick: int) -> list[Record]:
        """See `Watcher`."""
        names = self._known.parameter_names()
        uses = [self._use(state, names) for state in self._states.values() if state.use.steps]
        unowned = self._ownership.records()
        stalled = self._stalled.records(names)
        return [*uses, *self._never_stepped(), *unowned, *stalled, *self._sparse_gradients(tick)]

    def _never_stepped(self) -> Iterator[NeverStepped]:
        for state in self._states.values():
            use, begun = state.use, state.begun
            # Only those whose gradients are thrown away step after step.
            if use.place is None or begun is None or not use.dropped or (use.steps and not state.told):
                continue
            state.told = True
            state.look_at_first()
            yield NeverStepped(
                place=use.place,
                name=use.name,
                parameters=use.parameters,
                passes=state.looked_after,
                dropped=use.dropped,
                backward=begun[2],
                changed=state.changed,
                steps=use.steps,
            )

    def _use(self, state: _State, names: dict[int, str]) -> OptimizerUse:
        optimizer = state.ref()
        if optimizer is not None:
            # Whoever has optimizer state has been stepped with a gradient, whether or not we watched.
            # Iterating, and not asking by key: `state` is a defaultdict.
            state.never -= {id(p) for p in optimizer.state if optimizer.state[p]}
            # What was taken out of its groups, as libraries do that step on copies, is not stepped on any more.
            state.never &= {id(p) for g in optimizer.param_groups for p in g["params"]}
        missing = state.never - state.frozen.since.keys()
        state.names = {key: names.get(key) or state.names.get(key, "a parameter") for key in missing}
        state.use.without_gradient = sorted(state.names.values())[:8]
        state.use.without_gradient_count = len(state.names)
        state.use.frozen_untrained = len(state.never & state.frozen.since.keys())
        state.use.frozen_at = list(self._freezing.lines()) if state.frozen.since else []
        return state.use

    def _look_at(self, state: _State, optimizer: Optimizer) -> None:
        """A step has ended: what has been seen of the optimizer's parameters so far? It may be gone at the end."""
        use, history = state.use, state.history
        state.looked = use.steps
        history.look(optimizer, use.steps)
        stopped, zero = history.stopped(optimizer, use.steps), history.zero(optimizer)
        frozen = state.frozen.look(optimizer, state.asked, use.steps)
        names = self._known.parameter_names() if stopped or zero or frozen else {}
        use.stopped, use.zero, use.frozen = (
            [names.get(id(p), "a parameter") for p in found][:8] for found in (stopped, zero, frozen)
        )
        use.frozen_count, use.frozen_since = len(frozen), min(state.frozen.since.values(), default=0)
        use.stopped_count, use.zero_count, use.zero_looks = len(stopped), len(zero), history.zero_looks
        use.zero_valued = sum(not bool(p.detach().any()) for p in zero)
        use.stopped_after = max((history.last[id(p)] for p in stopped), default=0)
        use.silent = self._owners.silent(state.never | {id(p) for p in stopped})
        use.switched_off = self._owners.switched_off(state.never)
        checkpointed = self._owners.checkpointed(state.never)
        use.checkpointed, use.checkpointed_at = len(checkpointed), next(iter(checkpointed), None)
        # What the program changes itself, as an average of its inputs, needs no gradient.
        if use.switched_off is not None and not state.never & history.changed.keys():
            use.frozen_beside = self._frozen_beside(state.never)

    def _frozen_beside(self, parameters: set[int]) -> int:
        roots = ([*root.parameters()] for root in self._known.live_roots())
        mine = (found for found in roots if any(id(p) in parameters for p in found))
        return sum(not p.requires_grad for found in mine for p in found)

    def _place_of(self, optimizer: Optimizer | None) -> Place | None:
        """Where an optimizer was made; else where the first one was."""
        state = self._states.get(id(optimizer))
        if state is not None and state.ref() is optimizer and state.use.place is not None:
            return state.use.place
        return next((s.use.place for s in self._states.values() if s.use.place), None)

    def _never(self) -> set[int]:
        return {key for state in self._states.values() for key in state.never}


def _judge(optimizer: Optimizer, state: _State) -> None:
    """Count a step among those whose gradients were not cleared before, or that had none."""
    early = state.use.steps <= FIRST_STEPS
    # A closure's gradients are there only after the step.
    if early and state.backwards and not state.had_gradient:
        state.had_gradient = _note_gradients(optimizer, state)
    if state.use.steps > 1 and state.watched and state.backwards:
        state.use.checked += 1
        state.use.uncleared += not state.fresh_start
    elif early and not state.had_gradient:
        state.use.starved += 1


def _note_gradients(optimizer: Optimizer, state: _State) -> bool:
    found = False
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if gradient_of(parameter) is not None:
                found = True
                state.history.had(parameter, state.use.steps + 1)
                state.never.discard(id(parameter))
    return found


def _gradients(optimizer: Optimizer) -> Iterator[bool]:
    return (gradient_of(p) is not None for group in optimizer.param_groups for p in group["params"])


def _is_readable(optimizer: Optimizer) -> bool:
    """Whether no other thread trains with this optimizer's gradients."""
    # torch writes and frees `.grad` with the interpreter unlocked: to read another thread's ended the process.
    return all(is_readable(p) for group in optimizer.param_groups for p in group["params"][:1])


def _cleared(optimizer: Optimizer) -> bool:
    """Whether the gradients of an optimizer's parameters are gone or zero; looks at a few small ones."""
    return all(_is_zero(gradient) for _, gradient in _having(optimizer))


def _rewritten(optimizer: Optimizer, state: _State) -> bool:
    """Whether the program has written to all those gradients since the step: it means to keep what it has left, as an
    eligibility trace does. (In the first backward since then nothing else writes to them.)"""
    having = _having(optimizer)
    # Without a version from before nothing is proven.
    return bool(having) and all(g._version > state.versions.get(id(p), g._version) for p, g in having)


def _having(optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A few small parameters that have a gradient, and it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    having = [(p, gradient) for p in parameters if (gradient := gradient_of(p)) is not None]
    having.sort(key=lambda pair: pair[0].numel())
    # The largest too, if it is no great cost: clearing by hand may leave out some.
    return having[:_WITNESSES] + [pair for pair in having[-1:] if pair[0].numel() <= _SMALL]


def _witnesses(optimizer: Optimizer) -> list[weakref.ref[torch.UntypedStorage]]:
    found: list[weakref.ref[torch.UntypedStorage]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"][:_WITNESSES]:
            gradient = gradient_of(parameter)
            if gradient is not None and gradient.layout is torch.strided:
                # Weakly: a gradient that is set to None has to be freed, and its death tells that it was.
                found.append(weakref.ref(gradient.untyped_storage()))
    return found


def _is_zero(gradient: torch.Tensor) -> bool:
    with torch.no_grad():
        values = gradient.detach()
        values = values._values() if values.layout is torch.sparse_coo else values
        return values.numel() == 0 or not bool(values.count_nonzero().item())


def _history(optimizer: Optimizer, parameters: list[torch.Tensor]) -> tuple[int, int]:
    """How many steps an optimizer remembers, and in how many bytes: two vectors of all parameters for each."""
    size = optimizer.defaults.get("history_size")
    return (size, size * 2 * sum(p.nbytes for p in parameters)) if isinstance(size, int) else (0, 0)
