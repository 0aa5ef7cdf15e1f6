"""What of an operator's results is read in sampled steps: shared by the probes that find results nobody uses."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import get_ident
from typing import Any, ClassVar, Generic, TypeVar

import torch

from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import After, ByStorage, Host, StepKind, Unchecked, around, bare_name
from torchvet.probes.base.ledger import Line
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.probes.time.results.reach import Part

_SITES = 4
_MOST = 256
"""Calls of one step that are followed."""
Form = TypeVar("Form")
Use = TypeVar("Use", bound=Hashable)


@dataclass(eq=False)
class Call(Generic[Form]):
    """A call of this step, and what of its results was read so far."""

    at: Line
    form: Form
    parts: list[Part]
    old: bool = False
    """Whether a step has ended since."""


@dataclass
class Site(Generic[Use]):
    """A line with such calls."""

    uses: Counter[Use] = field(default_factory=Counter)
    """What was used, in how many calls."""
    calls: int = 0
    seconds: float = 0.0
    every: float = 0.0
    """Seconds of all operators of the line."""
    needed: bool = False
    """Whether all that some call gave was used, or that is not known."""


class ResultsWatcher(SampledTimer, Generic[Form, Use]):
    """Results of some operators of which only a part is used: what is `used` says the class below."""

    check: ClassVar[str]
    operators: ClassVar[frozenset[str]]
    in_backward: ClassVar[bool] = False
    """Whether what a backward pass reads counts: not where what would be called instead needs less there, too."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._known: ByStorage[Part] = ByStorage()
        self._calls: list[Call[Form]] = []
        self._sites: dict[Line, Site[Use]] = {}
        self._thread = get_ident()

    def matters(self, user: Line, args: Any, made: Sequence[torch.Tensor]) -> bool:
        """Whether a call is worth following."""
        raise NotImplementedError

    def given(self, name: str, args: Any, kwargs: Any, made: Sequence[torch.Tensor]) -> tuple[Form, list[Part]] | None:
        """The form of a call, and a part for each of its results; None where who reads them is not known."""
        raise NotImplementedError

    def used(self, call: Call[Form]) -> Use | None:
        """What was used of a call's results; None where that is all."""
        raise NotImplementedError

    def timed(self, at: Line, site: Site[Use]) -> None:
        """Time both ways, and record what was found."""
        raise NotImplementedError

    def install(self) -> None:
        """Hear each operator of sampled steps, and what reads numbers without one."""
        self.host.ledger.listeners.append(self._operator)
        for name in ("tolist", "numpy", "data_ptr", "__dlpack__", "__reduce_ex__"):
            self.replace(torch.Tensor, name, lambda original: around(original, self._reads))

    def _reads(self, args: Any, kwargs: Any) -> tuple[Any, After] | None:
        if self._known and args and self.host.sampling and not self._by_listener():
            with self.host.looking(self.check):
                self._read(args[0])
        return None

    def _by_listener(self) -> bool:
        """Whether another probe reads, which hears an operator: meanwhile no mode is on. Other threads have none."""
        return private.modes_on() == 0 and get_ident() == self._thread

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        backward = private.graph_task() != -1
        if backward and not self.in_backward:
            return
        if self._known and not _is_view(func):
            # By name: an order itself, as `sorter=`.
            for one in (*args, *kwargs.values()):
                for given in one if isinstance(one, (tuple, list)) else (one,):
                    self._read(given)
        if backward:
            return
        if self._sites:
            user, _ = self.host.ledger.located(sys._getframe(2))
            site = self._sites.get(user) if user is not None else None
            if site is not None:
                site.every += self.host.ledger.took
        name = bare_name(func)
        if name in self.operators:
            self._called(name, args, kwargs, out)

    def _read(self, given: Any) -> None:
        part = self._known.get(given)
        if part is not None:
            part.read(given)

    def _called(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        made = out if isinstance(out, tuple) else ()
        user, _ = self.host.ledger.located(sys._getframe(3))
        if user is None or not made or not all(map(is_plain, made)) or not self.matters(user, args, made):
            return
        site, took = self._sites.setdefault(user, Site()), self.host.ledger.took
        given = self.given(name, args, kwargs, made) if len(self._calls) < _MOST else None
        if given is None:
            site.needed = True
            return
        if not site.calls:
            site.every += took
        site.calls += 1
        site.seconds += took
        self._calls.append(Call(user, *given))
        for one, part in zip(made, given[1], strict=True):
            self._known.put(one, part)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: how much of the results was used?"""
        # Of a step whose end was not heard nothing is known.
        if self.host.ledger.exhausted:
            self._forget()
            return
        alive = {id(part) for _, part in self._known.living()}
        kept: list[Call[Form]] = []
        for call in self._calls:
            living = [part for part in call.parts if id(part) in alive]
            # A loop's name keeps it until the next turn binds it anew, and may be read until then.
            if living and not call.old:
                call.old = True
                kept.append(call)
            else:
                self._judge(call, living)
        self._calls = kept
        self._known.sweep()

    def _judge(self, call: Call[Form], living: list[Part]) -> None:
        site = self._sites.setdefault(call.at, Site())
        for part in living:
            # What is kept for longer may be read later.
            part.read_all()
        # Of what nobody has read anything was read unheard.
        unheard = not any(part.head for part in call.parts)
        use = None if unheard else self.used(call)
        if use is None:
            site.needed = True
        else:
            site.uses[use] += 1

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """From now on reads are not heard: of what lives on nothing is known."""
        self._forget()

    def _forget(self) -> None:
        self._calls.clear()
        self._known.clear()

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._sites.clear()
        self._forget()

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both ways, at those lines first that took most."""
        found = [(at, site) for at, site in self._sites.items() if site.uses and not site.needed]
        found.sort(key=lambda one: -one[1].seconds)
        if found and how not in ENDED:
            self.host.write(Unchecked(check=self.check, reason="the program did not come to its end"))
            return
        for at, site in found[:_SITES]:
            self.timed(at, site)


@cache
def _is_view(func: Callable[..., Any]) -> bool:
    """Whether an operator's result is its operand, seen otherwise: nothing is read."""
    schema = func._schema  # type: ignore[attr-defined]
    return any(a.alias_info is not None and not a.alias_info.is_write for a in schema.arguments)
