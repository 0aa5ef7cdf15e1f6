"""Notes every new storage during sampled steps: operator, shape, user line, and when it dies.

A dispatch mode costs 1.05–1.6 times a step while it is on (FACTS: cost of looking), so it is on for a few steps only.
Storages are held weakly; the weak reference's callback is the exact moment of death, which gives the live bytes at
every point of the window and the survivors ever after.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import torch

from torchvet.probes.base import frames, graphs
from torchvet.probes.base.callers import place_in
from torchvet.probes.base.lines_seen import LinesSeen
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import Aside
from torchvet.probes.internals.modes import OwnMode
from torchvet.recording.records.base import Place, Site, SiteBytes

_aten = torch.ops.aten
_BORN_THOUGH_ALIAS = {_aten.lift_fresh.default}
"""`torch.tensor(...)` makes its storage outside the dispatcher and shows only this."""
# In its schema `set_` is in-place, so that without this a copied model would have no birth.
_REBINDING = {getattr(_aten.set_, name) for name in _aten.set_.overloads()}  # type: ignore[no-untyped-call]
"""`copy.deepcopy` and unpickling make a bare storage and then a tensor on it."""
OUTSIDE = "outside torch's operators"

Line = tuple[CodeType, int]


class Birth:
    """A storage born in a window: size, site (unresolved), tick, and the event count at which it died.

    `rated` says that it is of a window of whole steps, so that bytes per step can be told from it; `window` numbers the
    window once that is over.
    """

    __slots__ = (
        "cast",
        "counted",
        "died",
        "event",
        "inner",
        "key",
        "module",
        "nbytes",
        "op",
        "phase",
        "rated",
        "ref",
        "tensor",
        "tick",
        "user",
        "window",
    )

    def __init__(self, key: int, nbytes: int, tick: int, event: int) -> None:
        self.key = key
        self.nbytes = nbytes
        self.tick = tick
        self.event = event
        self.died: int | None = None
        self.cast = ""
        """Of a copy that autocast made: see `autocast_peaks`."""
        self.counted = True
        self.rated = False
        self.window = 0
        self.ref: Any = None
        self.op: Any = None
        self.tensor: tuple[tuple[int, ...], str, str] = ((), "", "")
        self.user: Line | None = None
        self.inner: Line | None = None
        self.phase = "forward"
        self.module: str | None = None

    def site(self) -> Site:
        """The birth's site with its lines resolved; equal sites compare equal."""
        shape, dtype, device = self.tensor
        phase: Any = self.phase
        return Site(
            op=str(self.op).removesuffix(".default"), shape=shape, dtype=dtype, device=device, phase=phase,
            module=self.module, place=place_of_line(self.user), inner=place_of_line(self.inner),
        )  # fmt: skip


def place_of_line(line: Line | None) -> Place | None:
    """A line as a recorded place."""
    return None if line is None else place_in(*line)


def locate(frame: FrameType | None) -> tuple[Line | None, Line | None]:
    """The nearest line of the user's code from a frame outward, and the nearest of an installed package before it."""
    # The table is read directly: this runs for every operator, and nearly every file is known.
    owners = frames._owner_of_file
    inner: Line | None = None
    while frame is not None:
        code = frame.f_code
        whose = owners.get(code.co_filename)
        if whose is None:
            whose = frames.owner(code.co_filename)
        if whose == frames.USER:
            return (code, frame.f_lineno), inner
        if whose == frames.INSTALLED and inner is None:
            inner = (code, frame.f_lineno)
        frame = frame.f_back
    return None, inner


class Pausing(threading.local):
    """Whether the calling thread pauses the ledger. Looks of several threads overlap and end in any order."""

    # The class's value is what a thread that never paused reads.
    on = False


class Quiet:
    """A stretch in which a ledger notes nothing."""

    # A class and not a generator: this is entered at every look, several times a step.
    __slots__ = ("_before", "_pausing")

    def __init__(self, pausing: Pausing) -> None:
        self._pausing = pausing

    def __enter__(self) -> None:
        pausing = self._pausing
        self._before, pausing.on = pausing.on, True

    def __exit__(self, *error: object) -> None:
        self._pausing.on = self._before


class _Kind:
    """What is known of an operator: what becomes of its results, and who hears it."""

    __slots__ = ("changes", "fresh", "func", "heard")

    def __init__(self, func: Any, heard: list[Callable[..., None]]) -> None:
        # Kept with it: kinds are looked up by identity, as the hash of an operator is a call of Python's.
        self.func = func
        self.fresh = makes_storages(func) or func in _REBINDING
        self.changes = not makes_storages(func) and _changes(func)
        self.heard = tuple(heard)


class Ledger(OwnMode):  # type: ignore[no-untyped-call]
    """The dispatch mode. `live` maps a storage's key to its birth for as long as it lives.

    `tick`, `phase`, `module` and `running` are set from outside; `on_in_place` hears operators that write in place.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: dict[int, Birth] = {}
        # `live` spans windows; `births` and `events` are of this window alone.
        self.births: list[Birth] = []
        self.outside: list[Birth] = []
        """Storages that operators of this window read and that no operator made while the ledger looked."""
        self.known: set[int] = set()
        """Keys of parameters and the like: not worth following."""
        self.events: list[tuple[Birth, int]] = []
        self.tick = 0
        self.phase: str | None = None
        self.closure = False
        """Whether the optimizer that steps was given a closure."""
        self.module: Callable[[], str | None] = lambda: None
        self.running: Callable[[], torch.nn.Module | None] = lambda: None
        self.on_in_place: Callable[[Any, tuple[Any, ...]], None] | None = None
        self.heard: dict[Any, list[Callable[[Any, Any, Any, Any], None]]] = {}
        """By operator: who else hears it, after it has run."""
        self.updated: dict[int, Place] = {}
        """By storage: the line that has changed it in place last, with gradients on."""
        self.read: set[Birth] | None = None
        """Where asked for: births whose storages operators read. Not their keys: those are used again after a death."""
        self.broken: BaseException | None = None
        self.pausing = Pausing()
        self.refused = False
        """Set where this torch cannot be looked at so: the mode is never switched on."""
        self.inference = False
        """Whether it was not switched on in `inference_mode`."""
        self.stopped = False
        """Set where the mode should be left and cannot be yet."""
        self.took = 0.0
        """Seconds of the operator that listeners hear."""
        self.noting = 0.0
        """Seconds that noting operators has taken so far, but for looks that are accounted for by themselves."""
        self.looked: Callable[[], float] = lambda: 0.0
        """Seconds of such looks."""
        self._located: tuple[Line | None, Line | None] | None = None
        self.operators = 0
        self.most_operators = 1 << 60
        """A window notes no more than this: one step of a program can be thousands of tiny operators."""
        self.collecting = False
        self.collected: list[Birth] = []
        self.lines = LinesSeen()
        self.asides: list[Aside] = []
        """What is put into torch only while the mode is on."""
        self.listeners: list[Callable[[Any, Any, Any, Any], None]] = []
        """Hears every operator that is noted, with its arguments, keyword arguments and result."""
        self._kinds: dict[int, _Kind] = {}
        """By the operator's identity."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = perf_counter()
        out = func(*args, **(kwargs or {}))
        took = perf_counter() - began
        # This runs at every operator of the program in sampled steps: nothing but comparisons before it is noted.
        pausing = self.pausing
        if self.broken is None and not (pausing.on or self.stopped) and self.operators < self.most_operators:
            self.operators += 1
            looked, noting = self.looked(), perf_counter()
            self._located = None
            try:
                kind = self._kinds.get(id(func)) or self._kind(func)
                self._note(kind, func, args, out)
                self.took = took
                # What listeners compute is not the program's.
                pausing.on = True
                for listener in kind.heard:
                    listener(func, args, kwargs, out)
                for listener in self.listeners:
                    listener(func, args, kwargs or {}, out)
            # Once broken nothing is noted any more: half an event log would give a wrong peak.
            except Exception as error:  # the program must not suffer from what watches it
                self.broken = error.with_traceback(None)  # its frames would keep the program's variables
            finally:
                pausing.on, self._located = False, None
            # Looks within are accounted for by themselves.
            self.noting += max(0.0, perf_counter() - noting - (self.looked() - looked))
        return out

    def _kind(self, func: Any) -> _Kind:
        kind = self._kinds[id(func)] = _Kind(func, self.heard.get(func, []))
        return kind

    def _note(self, kind: _Kind, func: Any, args: Any, out: Any) -> None:
        if kind.changes and self.on_in_place is not None:
            self.on_in_place(func, args)
        if kind.fresh:
            self._all_born(out, func)
        # After the results: `lift_fresh` returns what it was given, and that is a birth.
        self._note_arguments(args)

    def _all_born(self, out: Any, op: Any) -> None:
        # Operators return tensors or flat tuples and lists of them; no operator nests deeper.
        if isinstance(out, torch.Tensor):
            self._born(out, op)
        elif isinstance(out, (tuple, list)):
            for tensor in out:
                if isinstance(tensor, torch.Tensor):
                    self._born(tensor, op)

    def _note_arguments(self, args: Any) -> None:
        """What an operator reads."""
        for arg in args:
            if isinstance(arg, torch.Tensor):
                self._reads(arg)
            elif isinstance(arg, (list, tuple)):
                for tensor in arg:
                    if isinstance(tensor, torch.Tensor):
                        self._reads(tensor)

    def _reads(self, tensor: torch.Tensor) -> None:
        """A storage never seen before came from outside the dispatcher (numpy, a worker)."""
        key = storage_key(tensor)
        if key is None:
            return
        birth = self.live.get(key)
        # Parameters are read by most operators: following them would cost and tell nothing.
        if birth is None and key not in self.known:
            self._found(tensor)
            birth = self.live.get(key)
        if self.read is not None and birth is not None:
            self.read.add(birth)

    def _found(self, tensor: torch.Tensor) -> None:
        """Follow a storage that was there already: its life counts, its birth is no event of this window."""
        storage = tensor.untyped_storage()
        if storage.device.type != "meta":
            self._describe(self._follow(storage, OUTSIDE, "data", counted=False), tensor)

    def _follow(self, storage: torch.UntypedStorage, op: Any, phase: str, counted: bool = True) -> Birth:
        birth = Birth(storage._cdata, storage.nbytes(), self.tick, len(self.events))
        birth.op, birth.phase, birth.counted = op, phase, counted
        # Held in the birth itself: a weak reference that dies before its referent calls nobody.
        birth.ref = weakref.ref(storage, _Death(self, birth.key, birth))
        self.live[birth.key] = birth
        if counted:
            self.births.append(birth)
            self.events.append((birth, birth.nbytes))
        else:
            self.outside.append(birth)
        return birth

    def _describe(self, birth: Birth, tensor: torch.Tensor) -> None:
        shape = () if tensor.is_nested else tuple(tensor.shape)  # nested tensors have no one shape: torch raises
        birth.tensor = (shape, _name_of(tensor.dtype), str(tensor.device))
        # Skips frames of this file: none of them is a line of the program's.
        frame = sys._getframe(4)
        birth.user, birth.inner = self.located(frame)
        if birth.user is not None:
            self.lines.at(birth.user, frame)

    def born(self, tensor: torch.Tensor, op: Any) -> None:
        """Note the storages of a tensor that somebody else than an operator, such as a loader, just made."""
        self._located = None
        self._born(tensor, op)
        self._located = None

    def _born(self, tensor: torch.Tensor, op: Any) -> None:
        for storage in graphs.storages_of(tensor):
            # In-place results and outputs that share a storage are born once.
            if storage._cdata not in self.live:
                birth = self._follow(storage, op, self._phase())
                self._describe(birth, tensor)
                birth.module = self.module()

    def ran_aside(self, op: str, out: Any) -> None:
        """See `OwnMode`."""
        if self.broken is None and not (self.pausing.on or self.stopped or self.exhausted):
            self._located = None
            self._all_born(out, op)
            self._located = None

    def _phase(self) -> str:
        """What the program is doing. A closure that an optimizer calls runs the passes, with gradients on."""
        within = self.phase == "optimizer" and self.closure and torch.is_grad_enabled()
        # A capturable optimizer or one with a closure calls backward within its own step.
        if self.phase is not None and not within and not (self.phase == "optimizer" and _in_backward()):
            return self.phase
        return "backward" if _in_backward() else "forward"

    def adopt(self, tensor: torch.Tensor) -> None:
        """Follow storages that were there before the window; the watch for their death is all that is new. One that an
        earlier window saw made is followed anew: what it counted there counts no more."""
        for storage in graphs.storages_of(tensor):
            known = self.live.get(storage._cdata)
            # What this window saw made keeps its true birth: the line that made it is better than
            # "adopted".
            if known is None or not known.counted:
                self._follow(storage, "adopted", "backward")

    def hear(self, operators: Iterable[Any], listener: Callable[..., None], guard: Callable[[str], Any]) -> None:
        """Tell `listener` of these operators, within a `guard`; no more of any once it has asked for a name of torch's
        that is missing here."""

        what = f"operators of sampled steps ({getattr(listener, '__name__', '').strip('_')})"

        def guarded(*told: Any) -> None:
            try:
                listener(*told)
            except Exception as error:
                # Only a failure gets a guard: one around each call costs more than most calls.
                with guard(what):
                    # Only this listener goes: others need other names, and the ledger itself none of them.
                    if isinstance(error, private.LacksName):
                        for listeners in self.heard.values():
                            listeners[:] = [one for one in listeners if one is not guarded]
                        self._kinds.clear()
                    raise

        for operator in operators:
            self.heard.setdefault(operator, []).append(guarded)
        self._kinds.clear()

    def quiet(self) -> Quiet:
        """What is made within is not the program's."""
        return Quiet(self.pausing)

    def located(self, frame: FrameType) -> tuple[Line | None, Line | None]:
        """`locate` for listeners: the line that called the operator which they hear, found once for all."""
        found = self._located
        if found is None:
            found = self._located = locate(frame)
        return found

    def line(self) -> Line | None:
        """The user's line that is running now."""
        user, inner = self._located or locate(sys._getframe(2))
        return user or inner

    @property
    def exhausted(self) -> bool:
        """Whether the window has noted all that it may."""
        return self.operators >= self.most_operators

    def enter(self) -> bool:
        """See `OwnMode`."""
        # A mode that could not be left yet is on still, and simply notes again.
        self.stopped = False
        on = not self.refused and super().enter()
        for aside in self.asides if on else ():
            aside.on()
        return on

    def leave(self) -> None:
        """See `OwnMode`."""
        super().leave()
        for aside in self.asides:
            aside.off()

    def forget_window(self) -> None:
        """Drop the finished window's event log; living births stay known."""
        # Of a copy: storages die meanwhile, when Python collects garbage or on other threads.
        for birth in self.live.copy().values():
            # Its end will be no event of a window that it was not born in.
            birth.counted = False
        self.events = []
        self.births = []
        self.outside = []


class _Death:
    """The callback of one storage's weak reference; holds the ledger weakly."""

    __slots__ = ("birth", "key", "ledger")

    def __init__(self, ledger: Ledger, key: int, birth: Birth) -> None:
        # Weak references live as long as the program's storages. The ledger must not outlive the session with
        # them.
        self.ledger = weakref.ref(ledger)
        self.key = key
        self.birth = birth

    def __call__(self, _: Any) -> None:
        ledger = self.ledger()
        birth = self.birth
        # Breaks the cycle birth → reference → callback → birth, which else waits for the collector.
        birth.ref = None
        # The session is over; -1 says that it died after everything.
        if ledger is None:
            birth.died = -1
            return
        birth.died = len(ledger.events)
        # An event of an earlier window's storage would be a death without a birth in the replay of this one.
        if birth.counted:
            ledger.events.append((birth, -birth.nbytes))
        if ledger.collecting:
            ledger.collected.append(birth)
        # The key is an address, which another storage may have by now.
        if ledger.live.get(self.key) is birth:
            del ledger.live[self.key]


def _in_backward() -> bool:
    return private.current_node() is not None


def makes_storages(func: Any) -> bool:
    """Whether an operator's results are storages of their own. Views and in-place operators say so in their schema."""
    if func in _BORN_THOUGH_ALIAS:
        return True
    try:
        # Higher-order operators have no schema; what they return is new.
        returns = func._schema.returns
    except AttributeError:
        return True
    # A result without alias annotation is a new storage. `all` of no returns is an alias: nothing is born.
    return not all(r.alias_info is not None for r in returns)


def _changes(func: Any) -> bool:
    """Whether an operator writes to an argument."""
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


@cache
def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def sum_by_site(births: Iterable[Birth], most: int = 12) -> list[SiteBytes]:
    """Births summed by site, the largest first."""
    sums: dict[Any, tuple[Birth, list[int]]] = {}
    for birth in births:
        key = (birth.op, birth.tensor, birth.user, birth.module, birth.phase)
        sums.setdefault(key, (birth, []))[1].append(birth.nbytes)
    rows = sorted(sums.values(), key=lambda row: -sum(row[1]))[:most]
    return [SiteBytes(site=birth.site(), bytes=sum(sizes), storages=len(sizes)) for birth, sizes in rows]


def storage_key(tensor: torch.Tensor) -> int | None:
    """The identity of a tensor's storage; None where it has none (sparse, meta subclasses)."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None
