"""Finds operators of sampled steps that compute what they have computed before, from the same operands."""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.callers import lines_of_user
from torchvet.probes.base.elements import is_plain, some_of
from torchvet.probes.base.kit import ByStorage, Host, Record, StepKind, bare_name, names
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.base.schedule import EARLY_WINDOWS
from torchvet.probes.internals import private
from torchvet.probes.time.again.foreign_memory import ForeignMemory, is_foreign
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import ComputedAgain

_LEAST = 30e-6
"""Seconds of an operator below which it is not worth a look: most of that is the call itself."""
_ENOUGH, _LITTLE = 2, 0.01
"""Steps that were compared with what ran before, from which on it is known whether there is anything to find, and the
share of their operators' time below which there is not. The other steps of a window are left then: numbering all
operands takes as long as everything else that sampled steps cost."""
_SHOWN = 20
_FRAMES = 60
_NEARLY = 0.8
"""The share of the time for which one pair of lines speaks. Chosen, not measured."""
_SAMPLES = 64
"""Elements of a result by which it is recognized."""
_UNSET = names("empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ set_")
"""What is in their results is chance."""
_GATHERING = names(
    "stack cat index index_select gather embedding clone copy_ zero_ fill_ "
    "zeros ones full zeros_like ones_like full_like"
)
"""What makes a batch, or fills memory: nothing is computed that could be kept."""
Lines = tuple[Line, ...]
"""The user's lines that led to an operator, the outermost first."""
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


_Version = tuple[int, int]
"""The number of changes by operators, and the mark of memory that others may write to."""


class _Unknown(Exception):
    """An operand of which nothing is known."""


class _Facts(NamedTuple):
    """What is known of an operator."""

    func: Any
    """Kept, as facts are found by its identity."""
    written: tuple[int, ...]
    """The positions of arguments that it writes to, and the names of others."""
    named: tuple[str, ...]
    is_chance: bool
    counts: bool
    """Whether it computes something that could be kept."""


@dataclass(slots=True)
class _Result:
    """One result: the sampled step in which it was computed last, a few of its elements, whether a backward pass
    computed it, and whether one can go back through it."""

    step: int
    digest: int | None
    backward: bool
    graphed: bool
    node: int
    """The number of autograd's own node that computed it in a backward pass; else -1."""
    lines: Lines

    def is_of(self, step: int, digest: int | None) -> bool:
        """Whether a result of this step is the same as this one, of the same step or the one before."""
        return digest is not None and self.digest == digest and self.step >= step - 1

    def is_autograds(self, known: _Result) -> bool:
        """Whether autograd computes again what is `known` of the same step, and nobody can keep it."""
        # A forward pass is computed again where it is checkpointed, which saves memory. One node may compute twice the
        # same: of `y * y` it multiplies for each operand.
        return self.backward and (not known.backward or self.node == known.node != -1)


class _Again(NamedTuple):
    """A call that computed again: its seconds, whether for a result of the same step and in a backward pass."""

    took: float
    within: bool
    backward: bool
    operator: str
    module: str
    traced: bool
    """Whether it is known which lines led to the call before and to this one."""
    parting: tuple[Line, Line] | None
    """The two of one function, where they part."""


@dataclass
class _Line:
    """A line: the seconds of its operators, and of those that computed again."""

    at: Line
    inner: Line | None
    seconds: float = 0.0
    again: float = 0.0


@dataclass
class _Function:
    """A function's operators that computed again what they had computed in this sampled step or in the one before."""

    id: int
    first: int
    """The sampled step in which it ran first. Nothing is counted in that: no result can be one of the step before."""
    lines: dict[int, _Line] = field(default_factory=dict)
    """By number."""
    seconds: float = 0.0
    calls: int = 0
    within: float = 0.0
    """Of the seconds: those of results that this very step had already."""
    backward: float = 0.0
    led_back: float = 0.0
    """Seconds of backward passes through results that this very step had already."""
    steps: set[int] = field(default_factory=set)
    operators: Counter[str] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)
    traced: float = 0.0
    """Of `within`: those of calls of which it is known which lines led there."""
    partings: Counter[tuple[Line, Line]] = field(default_factory=Counter)

    def add(self, step: int, call: _Again) -> None:
        """A call that computed again in this sampled step."""
        took = call.took
        self.calls += 1
        self.seconds += took
        self.within += took if call.within else 0.0
        self.backward += took if call.backward else 0.0
        self.steps.add(step)
        self.operators[call.operator] += round(took * 1e9)
        self.modules[call.module] += round(took * 1e9)
        self.traced += took if call.traced else 0.0
        if call.parting is not None:
            self.partings[call.parting] += round(took * 1e9)

    def parting(self) -> tuple[Line, Line] | tuple[None, None]:
        """The lines that led twice to nearly all results that a step had already, where these are the same two."""
        pair, most = self.partings.most_common(1)[0] if self.partings else ((None, None), 0)
        return pair if most >= _NEARLY * 1e9 * self.traced else (None, None)


class _Heard:
    """What the sampled step under way has shown. What kind of a step it is its end says."""

    def __init__(self) -> None:
        self.lines: dict[int, tuple[_Line, float]] = {}
        """By identity: the seconds of their operators."""
        self.again: list[tuple[_Function, _Line, _Again]] = []
        self.led_back: dict[int, tuple[_Function, float]] = {}
        self.passes = 0.0

    def share(self) -> float:
        """The share of the operators' time in which they computed again."""
        every = sum(took for _, took in self.lines.values())
        return sum(call.took for *_, call in self.again) / every if every else 0.0

    def on(self, line: _Line, took: float) -> None:
        """An operator ran there."""
        self.lines[id(line)] = line, took + self.lines.get(id(line), (line, 0.0))[1]

    def back(self, function: _Function, took: float) -> None:
        """A backward pass went through a result that was there already."""
        self.led_back[id(function)] = function, took + self.led_back.get(id(function), (function, 0.0))[1]

    def settle(self, step: int) -> None:
        """It counts."""
        for line, took in self.lines.values():
            line.seconds += took
        for function, line, call in self.again:
            line.again += call.took
            function.add(step, call)
        for function, took in self.led_back.values():
            function.led_back += took


class ComputedAgainProbe(TimeWatcher):
    """Results that are computed again.

    Each content of a storage has a number. An operator's result has one made of its own name and of all that it is
    given: numbers, shapes and strides of its operands, and every other argument. The same number is the same result,
    unless the operator draws random numbers, which gives a new number each time. Where a storage was changed unseen its
    version tells; of memory that others may write to, what it holds; where that does not tell either, a few elements of
    the result do.
    """

    only_sampled = frozenset(["boundary"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._heard = _Heard()
        self._counted = 0
        """Sampled steps that count."""
        self._contents: ByStorage[tuple[_Version, int]] = ByStorage()
        """By storage: its version and the number of its content then."""
        self._foreign = ForeignMemory()
        self._numbers = itertools.count(1)
        self._facts: dict[int, _Facts] = {}
        self._results: dict[int, _Result] = {}
        self._functions: dict[int, _Function] = {}
        self._nodes: dict[int, _Function] = {}
        """By number of a node of this step: whose it is, of results that the step had already."""
        self._passes = 0.0
        """Seconds of all operators of backward passes, from the second sampled step on."""
        self._sequence = 0
        """How many nodes autograd had numbered when the last operator was heard."""
        self._step, self._tick = 0, -1
        """The sampled step that runs, counted from 1, and its number among all."""
        self._twice = False
        """Whether a step has computed a result twice: from then on it is noted which lines lead to results."""
        self._compared, self._windows = 0, 0
        """Steps in a row that were compared and in which next to nothing was computed again; windows so far."""

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self._hear(True)

    def _hear(self, on: bool) -> None:
        listeners = self.host.ledger.listeners
        if on is not (self._operator in listeners):
            (listeners.append if on else listeners.remove)(self._operator)

    def _new_step(self) -> None:
        """The first operator of a sampled step."""
        self._settle()
        self._tick = self.host.tick
        self._step += 1
        self._contents.sweep()
        self._nodes.clear()
        # Results of the last step alone can be computed again. A table that grows would look like a leak besides.
        self._results = {key: one for key, one in self._results.items() if one.step >= self._step - 1}

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A sampled step ended. Those of evaluations compute once what training may compute twice."""
        if kind == "evaluation" and self.host.clock.level != kind:
            self._heard = _Heard()
        self._settle()
        # Not amid a step, where operators are heard.
        self._hear(self._compared < _ENOUGH)

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """Of windows that the run has time for the first steps are looked at, whatever the early ones showed."""
        self._windows += 1
        if self._windows >= EARLY_WINDOWS:
            self._compared = 0
            self._hear(True)

    def _settle(self) -> None:
        heard, self._heard = self._heard, _Heard()
        if heard.lines:
            self._counted += 1
            # All of the first step is new.
            if self._step > 1:
                self._compared = self._compared + 1 if heard.share() < _LITTLE else 0
            self._passes += heard.passes
            heard.settle(self._step)

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._functions.clear()
        self._heard = _Heard()
        self._step, self._counted, self._passes = 0, 0, 0.0
        self._results.clear()
        self._compared = self._windows = 0
        self._hear(True)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        took = self.host.ledger.took
        # A node is numbered before its operator runs; an operator without one leaves the number as it was.
        before, self._sequence = self._sequence, private.sequence_nr()
        if self.host.tick != self._tick:
            self._new_step()
        if private.graph_task() != -1 and self._step > 1:
            self._pass_operator(took)
        user, inner = self.host.ledger.located(sys._getframe(2))
        at = user or inner
        if at is None:
            return
        function, line = self._line(at, inner if user is not None else None)
        # The first steps are counted, too: what ran in them may have been computed before.
        self._heard.on(line, took if self._step > function.first else 0.0)
        # By identity: the hash of an operator is a call of Python's.
        facts = self._facts.get(id(func))
        if facts is None:
            facts = self._facts[id(func)] = _facts(func)
        number = None if facts.is_chance else self._number(func, facts, args, kwargs)
        made = self._note(facts, args, kwargs, out, number)
        if facts.counts and number is not None and took >= _LEAST:
            graphed = self._sequence > before
            if self._look(func, made, number, function, line, graphed) and graphed:
                self._nodes[self._sequence - 1] = function

    def _line(self, at: Line, inner: Line | None) -> tuple[_Function, _Line]:
        """What is known of a line, and of its function."""
        # By function: its lines are computed from each other, and one change serves them all.
        function = self._functions.get(id(at[0]))
        if function is None:
            function = self._functions[id(at[0])] = _Function(len(self._functions), self._step)
        line = function.lines.get(at[1])
        if line is None:
            line = function.lines[at[1]] = _Line(at, inner)
        return function, line

    def _pass_operator(self, took: float) -> None:
        """An operator of a backward pass: does it lead back through a result that was there already?"""
        self._heard.passes += took
        node = private.current_node() if self._nodes else None
        function = self._nodes.get(node._sequence_nr()) if node is not None else None
        if function is not None:
            self._heard.back(function, took)

    def _number(self, func: Any, facts: _Facts, args: Any, kwargs: Any) -> int | None:
        """One number of an operator and all that it is given; None where that is not known."""
        # What `out=` held before plays no part in the result.
        given = tuple([(name, value) for name, value in kwargs.items() if name not in facts.named])
        try:
            return hash((id(func), self._told(args), self._told(given)))
        except _Unknown:
            return None

    def _told(self, value: Any) -> Any:
        """What an argument is, as something that can be hashed."""
        if isinstance(value, torch.Tensor):
            if not is_plain(value):
                raise _Unknown
            dtype = value.dtype
            conjugated = dtype.is_complex and value.is_conj()
            return self._content(value), value.storage_offset(), value.shape, value.stride(), dtype, conjugated
        if isinstance(value, (tuple, list)):
            return tuple([self._told(one) for one in value])
        if isinstance(value, _PLAIN):
            return value.__class__, value
        raise _Unknown

    def _content(self, tensor: torch.Tensor) -> int:
        """The number of what a tensor's storage holds now."""
        storage = tensor.untyped_storage()
        version, known = self._version(tensor, storage), self._contents.of(storage)
        if known is not None and known[0] == version:
            return known[1]
        number = next(self._numbers)
        self._contents.keep(storage, (version, number))
        return number

    def _version(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> _Version:
        mark = 0
        if is_foreign(storage):
            with torch.no_grad():
                mark = self._foreign.mark(storage, self._step)
        # Inference tensors have no version: what is known of one holds for this step.
        return -1 - self._step if tensor.is_inference() else tensor._version, mark

    def _note(self, facts: _Facts, args: Any, kwargs: Any, out: Any, number: int | None) -> list[torch.Tensor]:
        """Number the contents that an operator made or changed; the tensors that have them."""
        changed = bool(facts.written or facts.named)
        if changed:
            given = [args[at] for at in facts.written if at < len(args)]
            made = _tensors(given + [kwargs[name] for name in facts.named if name in kwargs])
        else:
            made = _tensors(out if isinstance(out, (tuple, list)) else (out,))
        for at, tensor in enumerate(made):
            storage = tensor.untyped_storage()
            # A view has its storage's content. It shares that's version only when the operator has returned.
            if not changed and self._contents.of(storage) is not None:
                continue
            version = self._version(tensor, storage)
            if changed:
                # The version goes up only when the operator returns, which it has not for us.
                version = version[0] + (not tensor.is_inference()), version[1]
            self._contents.keep(storage, (version, next(self._numbers) if number is None else hash((number, at))))
        return made

    def _look(
        self, func: Any, made: list[torch.Tensor], number: int, function: _Function, line: _Line, graphed: bool
    ) -> bool:
        """An operator that takes time: is its result one of this step's, or of the last one's? True, where it is one of
        the forward pass that this step had already, in a graph as well: the pass back through it is another one's."""
        with torch.no_grad():
            digest = _digest(made)
        backward = private.graph_task() != -1
        node = _node() if backward else -1
        lines = lines_of_user(sys._getframe(3), _FRAMES) if self._twice else ()
        known, result = self._results.get(number), _Result(self._step, digest, backward, graphed, node, lines)
        if known is None or not known.is_of(self._step, digest):
            self._results[number] = result
            return False
        within = known.step == self._step
        if within and result.is_autograds(known):
            return False
        self._results[number] = result
        if self._step == function.first:
            return False
        name, module = bare_name(func), self.host.ledger.module() or ""
        self._twice = self._twice or within
        traced = within and bool(known.lines)
        parting = _parting(known.lines, lines) if traced else None
        call = _Again(self.host.ledger.took, within, backward, name, module, traced, parting)
        self._heard.again.append((function, line, call))
        return within and not backward and known.graphed

    def totals(self, tick: int) -> Iterable[Record]:
        """Functions that computed again, those that took most first."""
        self._settle()
        found = sorted((one for one in self._functions.values() if one.calls), key=lambda one: -one.seconds)
        for function in found[:_SHOWN]:
            lines = sorted((one for one in function.lines.values() if one.again), key=lambda one: -one.again)
            place = place_of_line(lines[0].at)
            first, again = map(place_of_line, function.parting())
            if place is not None:
                yield ComputedAgain(
                    id=function.id,
                    place=place,
                    inner=place_of_line(lines[0].inner),
                    operator=function.operators.most_common(1)[0][0],
                    module=_only(function.modules),
                    seconds=function.seconds,
                    within=function.within,
                    backward=function.backward,
                    led_back=function.led_back,
                    passes=self._passes,
                    calls=function.calls,
                    steps=len(function.steps),
                    sampled=self._counted,
                    lines=[(one.at[1], one.again / one.seconds) for one in lines],
                    first_at=first,
                    again_at=again,
                )


def _parting(first: Lines, again: Lines) -> tuple[Line, Line] | None:
    """Where two stacks part; None where they do so in different functions, or not at all: a loop comes the same way."""
    for one, other in zip(first, again, strict=False):
        if one[0] is not other[0]:
            return None
        if one[1] != other[1]:
            return one, other
    return None


def _node() -> int:
    """The number of the node that runs; -1 for one that is written in Python, which may keep what it computes."""
    node = private.current_node()
    own = node is not None and not isinstance(node, torch.autograd.function.BackwardCFunction)
    return node._sequence_nr() if own else -1


def _only(times: Counter[str]) -> str | None:
    """The module that nearly all of the time is of."""
    name, most = times.most_common(1)[0]
    return name if name and most >= 0.8 * times.total() else None


def _facts(func: Any) -> _Facts:
    given = [(n, a) for n, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    name = bare_name(func)
    return _Facts(
        func=func,
        written=tuple(n for n, a in given if not a.kwarg_only),
        named=tuple(a.name for _, a in given if a.kwarg_only),
        is_chance=name in _UNSET or torch.Tag.nondeterministic_seeded in func.tags,
        counts=name not in _GATHERING,
    )


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Strided tensors among values and in lists of them."""
    every = [one for value in values for one in (value if isinstance(value, (tuple, list)) else (value,))]
    return [one for one in every if is_plain(one)]


def _digest(made: list[torch.Tensor]) -> int | None:
    """A few elements of each result, as one number; None where one of them has none to look at."""
    some = [some_of(tensor, _SAMPLES) for tensor in made]
    told = [_bytes(one.tolist()) for one in some if one is not None]
    return hash(tuple(told)) if told and len(told) == len(made) else None


def _bytes(elements: list[Any]) -> bytes | str:
    """Numbers as something that can be hashed. Bytes of floats, as NaN is not equal to itself; text takes ten times as
    long."""
    return array("d", elements).tobytes() if isinstance(elements[0], float) else str(elements)
