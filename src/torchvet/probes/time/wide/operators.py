"""Sums up what operators on float64 take in sampled steps, where an optimizer's parameters are float64; after the run
those that take most are timed in float64 and in float32."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.base.costs import OPERATOR_SECONDS
from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import Host, Place, bare_name, called_by_user, tap, tensors_within
from torchvet.probes.base.ledger import Line, place_of_line
from torchvet.probes.base.watcher import Pass
from torchvet.probes.time.real_time import ENDED, TimeWatcher
from torchvet.probes.time.wide.both_widths import Call, timed, told
from torchvet.recording.records.precision import WideNumbers

_WHAT = "operators on float64"
_LEAST = 20e-6
"""Seconds of an operator below which most of it is the call itself. Chosen, not measured."""
_CALLS = 2048
"""Forms of calls that are told apart."""
_MOSTLY = 0.9
"""The share of the parameters' elements that are float64."""
_SHOWN = 3
_SOLVERS = ("linalg_", "cholesky", "triangular_solve", "lu_", "ormqr", "householder", "geqrf")
"""Operators whose results lose digits by the condition of a matrix."""


class WideNumbersProbe(TimeWatcher):
    """Operators on float64, whose tensors are not kept."""

    only_sampled = frozenset(["batch_got"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._tick = -1
        self._wide = False
        """Whether the parameters that are trained in this sampled step are float64."""
        self._steps = 0
        self._calls: dict[Call, float] = {}
        """The seconds of each form of a call."""
        self._lines: dict[Line, float] = {}
        self._operators: Counter[str] = Counter()
        self._seconds = self._every = self._whole = self._last = 0.0
        self._cast: tuple[int, Place] | None = None
        """How many elements the largest module has that was cast, and the line."""
        self._loaded = self._batches = self._derived = False
        self._solver = ""

    def install(self) -> None:
        """Hear each operator of sampled steps, and casts of modules."""
        self.host.ledger.listeners.append(self._operator)
        self.replace(torch.nn.Module, "double", tap(self.host, _WHAT, after=self._doubled))
        self.replace(torch.nn.Module, "to", tap(self.host, _WHAT, after=self._moved))

    def _doubled(self, _: Any, module: torch.nn.Module) -> None:
        place, size = called_by_user(), sum(one.numel() for one in module.parameters())
        if place is not None and (self._cast is None or size >= self._cast[0]):
            self._cast = size, place

    def _moved(self, _: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        if torch.float64 in (*args, kwargs.get("dtype")):
            self._doubled(_, module)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """Is the program fed by a loader?"""
        self._loaded = True
        self._batches = self._batches or any(_is_wide(one) for one in tensors_within(batch))

    def graph_entered(self, one: Pass) -> None:
        """A pass whose gradients are differentiated again?"""
        self._derived = self._derived or one.create_graph

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._calls.clear()
        self._lines.clear()
        self._operators.clear()
        self._steps, self._tick = 0, -1
        self._seconds = self._every = self._whole = 0.0

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        host = self.host
        if host.tick != self._tick:
            self._tick, self._wide = host.tick, _trains_wide(host)
            self._steps += self._wide
            self._last = time.perf_counter()
        if not self._wide:
            return
        took = host.ledger.took
        self._every += took
        self._pass(took)
        if not any(_is_wide(one) for one in tensors_within([args, kwargs])):
            return
        self._seconds += took
        name = bare_name(func)
        if name.lstrip("_").startswith(_SOLVERS):
            self._solver = name.lstrip("_")
        if took < _LEAST:
            return
        self._operators[name] += round(took * 1e9)
        user, inner = host.ledger.located(sys._getframe(2))
        line = user or inner
        if line is not None:
            self._lines[line] = self._lines.get(line, 0.0) + took
        call = told(func, args, kwargs, out)
        if call is not None and (call in self._calls or len(self._calls) < _CALLS):
            self._calls[call] = self._calls.get(call, 0.0) + took

    def _pass(self, took: float) -> None:
        """Time has passed since the last operator, of which noting this one is no part."""
        # In the very steps that the operators are of: a machine may be busier in others.
        now = time.perf_counter()
        self._whole += max(took, now - self._last - OPERATOR_SECONDS)
        self._last = now

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both."""
        # After an error nobody waits for times.
        if how not in ENDED or not self._steps or not self._lines:
            return
        place = place_of_line(max(self._lines, key=lambda line: self._lines[line]))
        # Trifles are not timed.
        if place is None or self._seconds < 0.1 * self._every:
            return
        taken = timed(self._calls)
        self.host.write(
            WideNumbers(
                place=place,
                seconds=self._seconds,
                every=self._every,
                whole=self._whole,
                sampled=self._steps,
                timed=taken.of,
                wide=taken.wide,
                narrow=taken.narrow,
                cast=self._cast[1] if self._cast is not None else None,
                by_default=torch.get_default_dtype() is torch.float64,
                loaded=self._loaded,
                batches=self._batches,
                solver=self._solver,
                derived=self._derived,
                operators=[name for name, _ in self._operators.most_common(_SHOWN)],
            )
        )


def _is_wide(value: torch.Tensor) -> bool:
    # A number that stands alone takes part in an operator on float32, too.
    return value.dtype is torch.float64 and value.dim() > 0 and is_plain(value)


def _trains_wide(host: Host) -> bool:
    """Whether nearly all elements that optimizers step on are float64."""
    tensors = [one for optimizer in host.known.live_optimizers() for one in _parameters(optimizer)]
    every = sum(one.numel() for one in tensors)
    return every > 0 and sum(one.numel() for one in tensors if one.dtype is torch.float64) >= _MOSTLY * every


def _parameters(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from (one for one in group["params"] if isinstance(one, torch.Tensor))
