"""Watches what each optimizer steps on: gradients left over, none at all, parameters that nobody steps."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of, is_readable
from torchvet.probes.base.kit import Host, Optimizer, Place, Record, StepKind, Watcher, frames
from torchvet.recording.records.training import OptimizerUse, SparseGradient, UnownedParameters

_ALWAYS_CHECKED = 8
_WITNESSES = 3
"""Parameters of an optimizer whose gradients are looked at; the smallest that have one."""
_SMALL = 1 << 16


@dataclass
class _State:
    ref: weakref.ref[Optimizer]
    use: OptimizerUse
    backwards: int = 0
    fresh_start: bool = False
    watched: bool = False
    had_gradient: bool = False
    never: set[int] = field(default_factory=set)
    gradients: list[weakref.ref[torch.UntypedStorage]] = field(default_factory=list)
    """Storages of a few gradients after the last step."""
    versions: dict[int, int] = field(default_factory=dict)
    """How often a few gradients had been written to by then, by parameter."""
    names: dict[int, str] = field(default_factory=dict)
    """Of the parameters in `never`, as long as somebody knew them."""


class OptimizerProbe(Watcher):
    """What optimizers step on. They are held weakly."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known = host.known
        self._states: dict[int, _State] = {}
        self._numbered = 0
        self._unowned: dict[int, tuple[int, int]] = {}
        self._unowned_steps = 0
        self._told: dict[str, list[tuple[weakref.ref[torch.Tensor], int]]] = {}
        """By module: the unowned parameters of its latest record, and their versions then."""
        self._built: dict[Place, tuple[weakref.ref[torch.Tensor], int]] = {}
        """By line: a parameter of the last optimizer made there, and how many before it had the same."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        place = frames.user_place(3)
        state = self._state(optimizer, place)
        first = next((p for g in optimizer.param_groups for p in g["params"]), None)
        if place is not None and first is not None:
            last, times = self._built.get(place, (None, 0))
            state.use.rebuilt = times + 1 if last is not None and last() is first else 0
            self._built[place] = weakref.ref(first), state.use.rebuilt

    def _state(self, optimizer: Optimizer, place: Place | None = None) -> _State:
        state = self._states.get(id(optimizer))
        if state is None or state.ref() is not optimizer:
            # Its address may have been another's, which then has no state any more: their number is no count.
            kind, parameters = type(optimizer).__name__, [p for g in optimizer.param_groups for p in g["params"]]
            use = OptimizerUse(id=self._numbered, name=kind, place=place, step_place=None, steps=0)
            use.parameters = len(parameters)
            state = _State(weakref.ref(optimizer), use)
            self._numbered += 1
            state.never = {id(p) for p in parameters if p.requires_grad}
            self._states[id(optimizer)] = state
            self._known.add_optimizer(optimizer)
        return state

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Before gradients flow: which optimizers start from cleared gradients?"""
        if is_grad:  # it adds to no `.grad`: it neither needs cleared gradients nor spoils them
            return
        watching = self.host.sampling
        for state in self._states.values():
            state.backwards += 1
            if state.fresh_start or not (watching or state.use.steps < _ALWAYS_CHECKED):
                continue
            optimizer = state.ref()
            if optimizer is not None and _is_readable(optimizer):
                state.watched = True
                state.fresh_start = _cleared(optimizer) or (state.backwards == 1 and _rewritten(optimizer, state))

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Before a step: is there any gradient to step on?"""
        state = self._state(optimizer)
        if state.gradients and any(ref() is None for ref in state.gradients):
            # The gradient of last time is gone: whoever assigned another did not add to it.
            state.fresh_start = True
        if state.use.step_place is None:
            state.use.step_place = frames.user_place(3)
        if state.use.steps < _ALWAYS_CHECKED or state.watched:
            state.had_gradient = _note_gradients(optimizer, state)

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """After a step: closures (LBFGS) run their backward inside it, so judge here."""
        state = self._state(optimizer)
        self._known.stepped(optimizer)
        state.use.steps += 1
        if state.use.steps <= _ALWAYS_CHECKED or state.watched:
            _judge(optimizer, state)
        if state.use.steps < _ALWAYS_CHECKED or state.watched:
            state.use.trainable = sum(p.requires_grad for g in optimizer.param_groups for p in g["params"])
            state.gradients = _witnesses(optimizer)
            state.versions = {id(p): g._version for p, g in _having(optimizer)}
        elif state.gradients or state.versions:
            state.gradients, state.versions = [], {}
        state.backwards = 0
        state.watched = state.fresh_start = state.had_gradient = False

    def settle(self, tick: int, kind: StepKind) -> None:
        """At the end of a sampled step: parameters with a gradient that no optimizer has and nobody changes."""
        if not self.host.sampling:
            return
        owned = self._known.owned()
        self._unowned_steps += 1
        for parameter in self._known.parameters():
            key = id(parameter)
            if key in owned or not parameter.requires_grad or gradient_of(parameter) is None:
                self._unowned.pop(key, None)
                continue
            version, times = self._unowned.get(key, (parameter._version, 0))
            if version != parameter._version:
                self._unowned.pop(key, None)
            else:
                self._unowned[key] = (version, times + 1)

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
        return [*uses, *self._unowned_records(), *self._sparse_gradients(tick)]

    def _use(self, state: _State, names: dict[int, str]) -> OptimizerUse:
        optimizer = state.ref()
        if optimizer is not None:
            # Whoever has optimizer state has been stepped with a gradient, whether or not we watched.
            state.never -= {id(p) for p in optimizer.state if optimizer.state[p]}
        state.names = {key: names.get(key) or state.names.get(key, "a parameter") for key in state.never}
        missing = list(state.names.values())
        state.use.without_gradient, state.use.without_gradient_count = sorted(missing)[:8], len(missing)
        return state.use

    def _unowned_records(self) -> list[UnownedParameters]:
        owned = self._known.owned()
        found = []
        latest: dict[str, list[tuple[weakref.ref[torch.Tensor], int]]] = {}
        place = next((s.use.place for s in self._states.values() if s.use.place), None)
        present = {id(p) for root in self._known.live_roots() for p in root.parameters()}
        # One that somebody gives its gradient, as a copy in higher precision gets it, is stepped on purpose.
        never = {key for state in self._states.values() for key in state.never}
        orphans = len((owned - present) & never)
        for root in self._known.live_roots():
            lost = self._lost_in(root, owned) if root.training else []
            if lost:
                module, size = type(root).__name__, sum(p.numel() * p.element_size() for _, p in lost)
                names, steps = [n for n, _ in lost][:8], self._unowned_steps
                kept, count = sum(id(p) in owned for p in root.parameters()), len(lost)
                record = UnownedParameters(module=module, names=names, count=count, bytes=size, owned=kept, steps=steps)
                record.place, record.orphans = place, orphans
                found.append(record)
                latest[module] = [(weakref.ref(p), p._version) for _, p in lost]
        self._told |= latest
        # Pyro makes an optimizer for each parameter only when it steps that parameter first.
        found.extend(self._retracted(owned, latest))
        return found

    def _lost_in(self, root: torch.nn.Module, owned: set[int]) -> list[tuple[str, torch.nn.Parameter]]:
        """Parameters of a module that had gradients in two sampled steps, and that no optimizer has."""
        unowned = ((n, p) for n, p in root.named_parameters() if id(p) not in owned)
        return [(n, p) for n, p in unowned if self._unowned.get(id(p), (0, 0))[1] >= 2]

    def _retracted(self, owned: set[int], latest: Collection[str]) -> Iterator[UnownedParameters]:
        """An empty record for each module whose parameters of an earlier record have all been given to an optimizer
        since, or changed by hand. A module that has died takes nothing back."""
        for module in [m for m in self._told if m not in latest]:
            alive = [(p, version) for p, version in ((ref(), v) for ref, v in self._told[module]) if p is not None]
            if alive and all(id(p) in owned or p._version != version for p, version in alive):
                del self._told[module]
                yield UnownedParameters(module=module, names=[], count=0, bytes=0, owned=0, steps=self._unowned_steps)


def _judge(optimizer: Optimizer, state: _State) -> None:
    """Count a step among those whose gradients were not cleared before, or that had none."""
    early = state.use.steps <= _ALWAYS_CHECKED
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
                state.never.discard(id(parameter))
    return found


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
    return bool(having) and all(g._version > state.versions.get(id(p), g._version) for p, g in having)


def _having(optimizer: Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A few small parameters that have a gradient, and it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    having = [(p, gradient) for p in parameters if (gradient := gradient_of(p)) is not None]
    having.sort(key=lambda pair: pair[0].numel())
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
