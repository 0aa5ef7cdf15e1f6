"""Finds loops that call many small modules of one shape, one after the other, and times one batched product after the
program has ended."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import Host, Place, StepKind, Unchecked, user_lines
from torchvet.probes.base.ledger import Line, locate
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.probes.time.row_calls.products import Maps, timed
from torchvet.recording.records.timing import RowCalls

CHECK = "what one product would take in place of many modules of one shape"
LEAST = 16
"""Modules from which on they are many. Chosen, not measured."""
_NODES = 64
"""Nodes of a graph that are gone back from what a module is given."""
_SITES = 3
_MOST_SITES = 64
_CALLERS = 6


class _Key(NamedTuple):
    """Calls on one line of modules of one shape, with as many rows each."""

    at: Line
    inputs: int
    outputs: int
    biased: bool
    rows: int


@dataclass
class _Loop:
    """Such calls within one call of another module, or within the step."""

    began: tuple[float, int]
    """When the first one began, and how many nodes autograd had numbered."""
    last: tuple[float, int] = (0.0, 0)
    modules: set[int] = field(default_factory=set)
    calls: int = 0
    outputs: set[int] = field(default_factory=set)
    """The nodes of their results, by number."""
    needs: bool = False
    """Whether one of them was given what is made of another's result: then they have an order."""
    given: set[tuple[int, int]] = field(default_factory=set)
    """Storages and offsets of what they are given."""
    storage: int = 0
    learned: bool = False
    result: tuple[int, int] = (0, 0)
    """Where the last result lies, and which storage it was written into."""
    written: Counter[int] = field(default_factory=Counter)
    """How many results were copied into tensors of so many bytes."""


@dataclass
class _Site:
    places: list[Place]
    loops: Counter[Maps] = field(default_factory=Counter)
    ordered: bool = False
    seconds: float = 0.0
    late: float = 0.0
    """Seconds of operators in backward passes, through what the loops have computed."""
    backward: float = 0.0
    """Of all operators in backward passes of the same steps."""
    whole: Counter[int] = field(default_factory=Counter)
    """Steps that were seen to their end, by how many loops they had."""


_Calls = dict[_Key, _Loop]


class ModulesAlikeProbe(SampledTimer):
    """Modules of one shape that are called one after the other."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._step: _Calls = {}
        self._running: list[tuple[_Calls, _Loop | None]] = []
        """What each running module has called, and the loop that it is a part of."""
        self._sites: dict[_Key, _Site] = {}
        self._spans: list[tuple[_Site, int, int]] = []
        self._open: _Loop | None = None
        """The loop whose result came last."""
        self._backward = 0.0

    def install(self) -> None:
        """Hear modules and operators of sampled steps."""
        if not isinstance(private.sequence_nr, private.Lacking):
            self.host.ledger.asides.append(ModuleHooks(before=self._starts, after=self._ended))
            self.host.ledger.listeners.append(self._operator)

    def _starts(self, module: torch.nn.Module, args: Any) -> None:
        """A module is called."""
        if self.host.active:
            loop = None
            if type(module) is torch.nn.Linear:
                with self.host.looking(CHECK):
                    loop = self._called(module, args)
            self._running.append(({}, loop))

    def _called(self, module: torch.nn.Linear, args: Any) -> _Loop | None:
        user, inner = locate(sys._getframe(2))
        at = user or inner
        if at is None or len(args) != 1 or not _is_plain(args[0], module):
            return None
        given = args[0]
        rows = given.numel() // max(1, module.in_features)
        key = _Key(at, module.in_features, module.out_features, module.bias is not None, rows)
        calls = self._running[-1][0] if self._running else self._step
        now = time.perf_counter(), private.sequence_nr()
        loop = calls.setdefault(key, _Loop(now))
        loop.last = now
        loop.calls += 1
        loop.modules.add(id(module))
        loop.needs = loop.needs or _needs(given.grad_fn, loop)
        loop.given.add((given.untyped_storage()._cdata, int(given.storage_offset())))
        loop.storage = given.untyped_storage().nbytes()
        loop.learned |= given.requires_grad
        if loop.calls == LEAST and key not in self._sites and len(self._sites) < _MOST_SITES:
            self._sites[key] = _Site(user_lines(sys._getframe(3), _CALLERS))
        return loop

    def _ended(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """It returned."""
        if not self._running or not self.host.active:
            return
        calls, loop = self._running.pop()
        if loop is not None and isinstance(output, torch.Tensor) and output.grad_fn is not None:
            loop.outputs.add(output.grad_fn._sequence_nr())
            loop.result = output.untyped_storage()._cdata, loop.result[1]
            self._open = loop
        self._close(calls)

    def _close(self, calls: _Calls) -> None:
        """All that a call (or a step) has called is known."""
        for key, loop in calls.items():
            site = self._sites.get(key)
            if site is None or loop.calls < LEAST:
                continue
            if loop.needs or len(loop.modules) < loop.calls:
                site.ordered = True
                continue
            (began, first), (ended, last) = loop.began, loop.last
            site.loops[_maps(key, loop)] += 1
            site.seconds += (ended - began) * loop.calls / (loop.calls - 1)
            self._spans.append((site, first, last + (last - first) // (loop.calls - 1)))

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if private.graph_task() != -1:
            self._in_backward()
        elif func is torch.ops.aten.copy_.default and self._open is not None:
            into, what = args[:2]
            if isinstance(what, torch.Tensor) and what.untyped_storage()._cdata == self._open.result[0]:
                self._open.written[into.untyped_storage().nbytes()] += 1

    def _in_backward(self) -> None:
        """Through which loop's results does it go?"""
        took = self.host.ledger.took
        self._backward += took
        if self._step and not self._running:
            # A backward pass comes after the loop that the step itself has.
            self._close(self._step)
            self._step = {}
        node = private.current_node() if self._spans else None
        if node is not None:
            number = node._sequence_nr()
            site = next((site for site, first, last in self._spans if first <= number < last), None)
            if site is not None:
                site.late += took

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if not self.host.ledger.exhausted:
            self._close(self._step)
        loops = Counter(id(site) for site, _, _ in self._spans)
        for site in {id(site): site for site, _, _ in self._spans}.values():
            site.backward += self._backward
            # Of many operators a part is heard.
            if not self.host.ledger.exhausted:
                site.whole[loops[id(site)]] += 1
        self._step, self._open, self._backward = {}, None, 0.0
        self._spans.clear()
        self._running.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._sites.clear()

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, of those loops first that took most."""
        least = self.least()
        worth = [s for s in self._sites.values() if s.loops and s.places and not s.ordered and s.seconds >= least]
        if worth and how not in ENDED:
            self.host.write(Unchecked(check=CHECK, reason="the program did not come to its end"))
            return
        for site in sorted(worth, key=lambda one: -one.seconds)[:_SITES]:
            self._timed(site)

    def _timed(self, site: _Site) -> None:
        loops = sum(number * steps for number, steps in site.whole.items())
        maps = max(site.loops, key=lambda one: site.loops[one] * one.number)
        taken = timed(maps)
        if taken is None:
            return
        self.host.write(
            RowCalls(
                place=site.places[0],
                callers=site.places[1:],
                module="Linear",
                modules=maps.number,
                rows=maps.number,
                loops=loops or sum(site.loops.values()),
                sampled=sum(site.whole.values()) or self.sampled,
                differentiated="summed" if site.late else "",
                late=min(1.0, site.late / site.backward) if site.backward else 0.0,
                one=taken[0] / maps.number,
                together=taken[1],
                timed=maps.number,
            )
        )


def _maps(key: _Key, loop: _Loop) -> Maps:
    size = 4 * loop.calls * key.rows
    return Maps(
        number=loop.calls,
        rows=key.rows,
        inputs=key.inputs,
        outputs=key.outputs,
        biased=key.biased,
        shared=len(loop.given) == 1,
        selected=len(loop.given) == loop.calls and loop.storage == size * key.inputs,
        learned=loop.learned,
        assigned=2 * loop.written[size * key.outputs] > loop.calls,
    )


def _is_plain(given: Any, module: torch.nn.Linear) -> bool:
    """Whether it computes in float32 on the CPU, with gradients: without them nothing says what needs what."""
    weight = module.weight
    return (
        type(given) is torch.Tensor
        and given.layout is torch.strided
        and given.device.type == "cpu"
        and given.dtype is weight.dtype is torch.float32
        and weight.requires_grad
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )


def _needs(node: Any, loop: _Loop) -> bool:
    """Whether what a module is given is made of a result of the same loop; so it is taken to be where that would be a
    long way back."""
    waiting, seen = [node], 0
    while waiting:
        one = waiting.pop()
        if one is None:
            continue
        number = one._sequence_nr()
        if number in loop.outputs:
            return True
        seen += 1
        if seen > _NODES:
            return True
        # Nodes of before the loop; those that add up gradients have the highest number of all.
        if loop.began[1] <= number < 1 << 62:
            waiting.extend(before for before, _ in one.next_functions)
    return False
