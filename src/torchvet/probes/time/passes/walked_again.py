"""Finds backward passes of one step that go through the same nodes and add to the same gradients."""

from __future__ import annotations

import statistics
import time
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of, is_alone
from torchvet.probes.base.kit import (
    EVERY_STEP,
    Host,
    Optimizer,
    Place,
    StepKind,
    bare_name,
    frames,
    graphs,
    names,
    tap,
)
from torchvet.probes.base.ledger import storage_key
from torchvet.probes.base.watcher import Pass
from torchvet.probes.internals import private
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.numerics import half
from torchvet.probes.time.lone_parts import is_leaf
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.passes import WalkedAgain

_WHAT = "backward passes through the same nodes"
_MOST_NODES = 16_384
"""Nodes of a graph that are gone through; what a larger one shares with another is not known."""
_MOST_PASSES = 64
"""Passes between two steps of an optimizer that are followed."""
_MOST_HOOKED = 4096
"""Nodes that are known to have a hook."""
_MOST_PAST = 8
"""Runs that are remembered, for what later passes have in common with them."""
_BY_ENGINE = names("add add_ sum view reshape _unsafe_view expand _to_copy detach ones_like")
"""What autograd runs between nodes, by itself: gradients of several ways are added up, and given their shape. Anything
else that runs there is a hook of the program's."""
# A module's hooks of backward; a part whose nodes the graph does not show.
_OPAQUE = ("BackwardHookFunctionBackward", "CheckpointFunctionBackward")

Mark = tuple[int, int] | None
"""A gradient's tensor and how often it was written to: the same as long as nobody has changed it."""


@dataclass
class _Pass:
    """A backward pass, by what its operators took in each node that it went through."""

    place: Place
    numbers: set[int]
    """Of the nodes at and below what it began from."""
    leaves: dict[int, weakref.ref[torch.Tensor]]
    before: dict[int, Mark]
    timed: bool
    took: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """By number of a node, of leaves by -1 minus their identity: seconds, or operators where these take none."""
    all: float = 0.0
    hooked: bool = False


@dataclass
class _Run:
    """Passes one after the other, between which nobody has touched the gradients."""

    passes: list[_Pass] = field(default_factory=list)
    marks: dict[int, tuple[weakref.ref[torch.Tensor], Mark]] = field(default_factory=dict)
    keys: set[int | None] = field(default_factory=set)
    """Of the storages of gradients."""
    read: bool = False

    def untouched(self) -> bool:
        """Whether the gradients are as the last pass has left them."""
        return not self.read and all(_mark(ref()) == mark for ref, mark in self.marks.values())

    def remember(self, one: _Pass) -> None:
        """Note how a further pass has left the gradients."""
        self.passes.append(one)
        refs = {key: ref for key, (ref, _) in self.marks.items()} | one.leaves
        self.marks = {key: (ref, _mark(ref())) for key, ref in refs.items()}
        found = (gradient_of(leaf) for ref in refs.values() if (leaf := ref()) is not None)
        self.keys = {storage_key(gradient) for gradient in found if gradient is not None}


class WalkedAgainProbe(TimeWatcher):
    """Backward passes of a step through the same nodes."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._entered: tuple[bool, bool] | None = None
        """Whether the pass that is about to run keeps its graph, and whether it makes one."""
        self._run = _Run()
        self._pass: _Pass | None = None
        self._past: deque[tuple[set[int], Place, bool]] = deque(maxlen=_MOST_PAST)
        """The nodes of runs before, where each began, and whether an optimizer has ended it."""
        self._sites: dict[Place, WalkedAgain] = {}
        self._passes: Counter[Place] = Counter()
        """By line that calls backward."""
        self._shares: defaultdict[Place, list[float]] = defaultdict(list)
        """By where passes begin that have nodes in common: the share of each step's that one would save."""
        self._needed: set[Place] = set()
        """Lines whose passes are needed one by one."""
        self._hooked: set[int] = set()
        """Numbers of nodes whose gradient somebody hears of, or keeps: in each pass."""
        self._allowance = half.Allowance(0.1, 0.003)

    def install(self) -> None:
        """Hear each operator of sampled steps, and of hooks: a node does not show them, and they may run none."""
        self.host.ledger.listeners.append(self._operator)
        for name in ("register_hook", "retain_grad"):
            self.replace(torch.Tensor, name, tap(self.host, _WHAT, before=self._heard))

    def _heard(self, tensor: torch.Tensor, *_: Any, **__: Any) -> None:
        # Those of leaves are seen at the leaves.
        if tensor.grad_fn is not None:
            if len(self._hooked) >= _MOST_HOOKED:
                self._hooked.clear()
            self._hooked |= set(graphs.numbered([tensor.grad_fn]))

    def graph_entered(self, one: Pass) -> None:
        """A pass that keeps its graph, or makes one."""
        if self.host.sampling and private.graph_task() == -1:
            self._entered = one.retain_graph, one.create_graph

    # Passes -----------------------------------------------------------------------------------------------------

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Does this pass go on with a run, or begin one?"""
        if private.graph_task() != -1:
            return
        keeps, makes = self._entered or (False, False)
        self._entered = self._pass = None
        if is_grad or makes:
            self._end(used=False)
        elif self.host.sampling and (keeps or self._run.passes or self._past) and is_alone():
            place = frames.user_place(3)
            if place is not None and self._allowance.left():
                self._begin(place, tensors if isinstance(tensors, (list, tuple)) else (tensors,))
            else:
                self._forget()

    def _begin(self, place: Place, tensors: Iterable[torch.Tensor]) -> None:
        began = time.thread_time()
        with self.host.ledger.quiet():
            if not self._run.untouched():
                self._end(used=False)
            one = _followed(place, tensors)
            if one is not None and not self._hooked.isdisjoint(one.numbers):
                self._needed.add(place)
                one = None
            if one is None or len(self._run.passes) >= _MOST_PASSES:
                self._forget()
            else:
                self._goes_on(one)
                self._pass = one
        self._allowance.spend(began)

    def _goes_on(self, one: _Pass) -> None:
        """Does a pass go through what a run before it has gone through? Then that was kept for it."""
        for nodes, place, used in self._past:
            if nodes.isdisjoint(one.numbers):
                continue
            if not used:
                self._needed |= {place, one.place}
            elif place in self._sites:
                self._sites[place].kept = True

    def backward_failed(self) -> None:
        """See `Watcher`."""
        if private.graph_task() == -1:
            self._forget()

    def backward_ended(self, is_grad: bool) -> None:
        """What has the pass gone through?"""
        if is_grad or private.graph_task() != -1:
            return
        one, self._pass = self._pass, None
        if one is None:
            return
        # Where the window has ended within the pass its later operators were not heard.
        if not self.host.sampling or self.host.ledger.exhausted:
            self._forget()
            return
        began = time.thread_time()
        with self.host.ledger.quiet():
            # A leaf without a new gradient: the pass was told which to give one.
            if one.hooked or any(_mark(ref()) == one.before[key] for key, ref in one.leaves.items()):
                self._needed.add(one.place)
                self._forget()
            else:
                self._run.remember(one)
        self._allowance.spend(began)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        one = self._pass
        if one is not None and private.graph_task() != -1:
            took = self.host.ledger.took if one.timed else 1.0
            one.all += took
            node = private.current_node()
            if node is None:
                one.hooked = one.hooked or bare_name(func) not in _BY_ENGINE
            else:
                one.took[-1 - id(node.variable) if is_leaf(node) else node._sequence_nr()] += took
        elif one is None and self._run.passes and not self._run.read:
            given = [each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else (arg,))]
            self._run.read = any(isinstance(t, torch.Tensor) and storage_key(t) in self._run.keys for t in given)

    # Runs ---------------------------------------------------------------------------------------------------------

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """The gradients are used."""
        if self._run.passes and private.graph_task() == -1:
            self._end(used=True)

    def _end(self, used: bool) -> None:
        """Judge the run so far."""
        run, self._run = self._run, _Run()
        if not run.passes:
            # Further optimizers step.
            return
        place = self._judge(run.passes)
        # Of a run that an optimizer has ended without passes in common nothing can be asked later.
        if place is not None or not used:
            nodes = set().union(*(one.numbers for one in run.passes))
            self._past.append((nodes, place or run.passes[0].place, used))

    def _judge(self, passes: list[_Pass]) -> Place | None:
        """Where the passes begin that have nodes in common, if any do."""
        walks = Counter(number for one in passes for number in one.took)
        # Parameters that several passes lead to are no nodes in common: micro-batches have them.
        nodes = {number for number, count in walks.items() if count > 1 and number >= 0}
        sharing = [one for one in passes if not nodes.isdisjoint(one.took)]
        self._passes.update(one.place for one in passes)
        if not sharing:
            return None
        place = sharing[0].place
        known = self._sites.setdefault(place, WalkedAgain(id=len(self._sites), place=place, timed=sharing[0].timed))
        known.steps += 1
        known.passes += len(sharing)
        known.nodes = max(known.nodes, len(nodes))
        known.lines += dict.fromkeys(one.place for one in sharing if one.place not in known.lines)
        self._shares[place].append(_saved(sharing, walks))
        return place

    def _forget(self) -> None:
        """What comes next cannot be judged by what was before."""
        self._run, self._pass = _Run(), None
        self._past.clear()

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if not self.host.sampling:
            self._forget()

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._forget()
        self._sites.clear()
        self._passes.clear()
        self._shares.clear()
        self._needed.clear()

    def totals(self, tick: int) -> Iterable[WalkedAgain]:
        """Lines whose passes went through the same nodes each time."""
        for place, site in self._sites.items():
            if self._needed.isdisjoint(site.lines):
                # The middle step: on a busy machine one operator may have waited for longer than all others took.
                middle = statistics.median(self._shares[place])
                site.share = middle * site.passes / sum(self._passes[line] for line in site.lines)
                yield site


def _saved(sharing: list[_Pass], walks: Counter[int]) -> float:
    """The share of what passes took that one would save: of so many walks through a node one remains."""
    saved = sum(took * (1 - 1 / walks[number]) for one in sharing for number, took in one.took.items())
    return saved / (sum(one.all for one in sharing) or 1.0)


def _followed(place: Place, tensors: Iterable[Any]) -> _Pass | None:
    """A pass that begins from losses; None where what it goes through cannot be told, or where others hear of it."""
    roots = list(tensors)
    if not graphs.followed() or not all(isinstance(t, torch.Tensor) and t.numel() == 1 for t in roots):
        return None
    found = list(all_below(graphs.roots_of(roots), _MOST_NODES))
    leaves = {id(node.variable): node.variable for node in found if is_leaf(node)}
    if len(found) >= _MOST_NODES or _is_hooked(leaves.values()) or _is_opaque(found):
        return None
    refs = {key: weakref.ref(leaf) for key, leaf in leaves.items()}
    before = {key: _mark(leaf) for key, leaf in leaves.items()}
    # Elsewhere operators return before their work is done.
    timed = all(t.device.type == "cpu" for t in roots)
    return _Pass(place, set(graphs.numbered(found)), refs, before, timed)


def _is_hooked(leaves: Iterable[torch.Tensor]) -> bool:
    return any(leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf in leaves)


def _is_opaque(nodes: Iterable[graphs.Node]) -> bool:
    return any(graphs.name_of(node).endswith(_OPAQUE) for node in nodes)


def _mark(parameter: torch.Tensor | None) -> Mark:
    gradient = gradient_of(parameter) if parameter is not None else None
    return (gradient._cdata, gradient._version) if gradient is not None else None
