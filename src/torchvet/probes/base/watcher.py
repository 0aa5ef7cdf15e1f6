"""What a probe is that needs no more than events: the observer tells every watcher in turn, guarded and accounted for.

A watcher that wraps functions of torch's own does so in `install()`, passes every call through unchanged, and asks
`host.active` first: within torchvet's own work, in forked children and after the end nothing counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from torch.optim.optimizer import Optimizer

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals.patching import replace
from torchvet.probes.internals.private import LacksName
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.training import Unchecked

Listener = Callable[[Any, tuple[Any, ...], Any, Any], None]
"""Given an operator, its arguments, its keyword arguments (or None) and its result, below autograd."""


class Host(Protocol):
    """What a watcher may ask of the observer."""

    @property
    def active(self) -> bool:
        """Whether events count."""
        ...

    @property
    def tick(self) -> int:
        """Step boundaries passed so far."""
        ...

    @property
    def step(self) -> int:
        """The number of the step under way, from 1."""
        ...

    @property
    def sampling(self) -> bool:
        """Whether operators are being heard."""
        ...

    @property
    def known(self) -> KnownMemory:
        """Root modules, optimizers and their storages."""
        ...

    @property
    def options(self) -> Any:
        """The session's `Options`."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Notes what operators make in sampled steps, and tells its listeners of them."""
        ...

    def write(self, record: Record) -> None:
        """Add a record at once."""
        ...

    def hear(self, operators: Iterable[Any], listener: Listener) -> None:
        """Tell `listener` of each of these operators that runs in a sampled step, after it has run."""
        ...

    def line(self) -> Place | None:
        """Within a listener: the user's line whose operator it is told of."""
        ...

    def made_at(self, tensor: Any) -> Place | None:
        """The user's line that made a tensor's storage, if that was in a sampled step."""
        ...

    def looking(self, what: str) -> AbstractContextManager[None]:
        """Work of torchvet's own: what goes wrong in it is recorded as unchecked (`what`), what it makes is no event,
        and its seconds are accounted for."""
        ...


PASSING = ("batch_got", "backward_starts", "backward_ended", "optimizer_starts", "optimizer_ended", "boundary")
"""Events of every step. Hearing of one takes microseconds even where nothing is done: a step has emptied the caches."""


class Watcher:
    """Base of all watchers: every event is passed by. Events come on the thread where they happen."""

    only_sampled = False
    """Whether events of every step mean something in sampled steps only. It is told of those, and of one step more."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._undo = ExitStack()
        self.asleep = False
        """Whether what happens in every step means nothing to it yet. It is told of none of that until `wake()`."""
        self.ignored: frozenset[str] = frozenset()
        """Events of every step that mean nothing to it yet. It is told of them from `heed()` on."""
        self.woken: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """From now on events mean something."""
        if self.asleep:
            self.asleep = False
            self.woken()

    def heed(self) -> None:
        """From now on events that were ignored mean something."""
        if self.ignored:
            self.ignored = frozenset()
            self.woken()

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Whether a session with these `Options` has this watcher at all. One that times precisions has few: what they
        do each step is a step's own time for small programs, and the same in all precisions."""
        return options.amp_mode is None

    def install(self) -> None:
        """Wrap what must be wrapped; called once, when torch has been imported."""

    def remove(self) -> None:
        """Leave torch as it was."""
        self._undo.close()

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Put `wrap(original)` in place of a class's or module's own attribute until `remove()`."""
        replace(self._undo, owner, name, wrap(owner.__dict__[name]))

    def batch_got(self, batch: Any) -> None:
        """A loader gave a batch."""

    def forward_ended(self, output: Any) -> None:
        """A root module gave this, in a step that is looked at."""

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """`backward` (or `autograd.grad`) is about to run from these tensors."""

    def backward_ended(self, is_grad: bool) -> None:
        """It returned."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was constructed."""

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """An optimizer's step begins. A scaler that skips a step calls only fused optimizers."""

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """It returned."""

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: the `tick`-th boundary was passed."""

    def totals(self, tick: int) -> Iterable[Record]:
        """Running totals, asked for after windows and at the end: for one key the last one written counts."""
        return ()

    def finish(self, how: str, error: BaseException | None) -> None:
        """The program has ended; its frames are alive only in `error`'s traceback."""

    def unchecked(self) -> Iterable[Unchecked]:
        """What could not be looked at, asked for at the end."""
        return ()


class Watchers:
    """All watchers of a session, told in turn."""

    def __init__(self, host: Host, kinds: Iterable[type[Watcher]]) -> None:
        self._host = host
        self._all = [kind(host) for kind in kinds if kind.wanted(host.options)]
        self._listening: dict[str, list[tuple[Watcher, Callable[..., Any]]]] = {}
        self._sampled = True
        for one in self._all:
            one.woken = self._woken

    def install(self) -> None:
        """Install each; one that cannot be is switched off."""
        for one in list(self._all):
            with self._host.looking(_name(one)):
                try:
                    one.install()
                except Exception:
                    self.switch_off(one)
                    raise

    def switch_off(self, one: Watcher) -> None:
        """It is told of nothing any more."""
        self._all.remove(one)
        self._listening = {}
        one.remove()

    def switch_off_kind(self, name: str) -> None:
        """The same, for watchers of a class."""
        for one in [one for one in self._all if type(one).__name__ == name]:
            self.switch_off(one)

    def remove(self) -> None:
        """Leave torch as it was, the last to come first."""
        for one in reversed(self._all):
            one.remove()

    def tell(self, event: str, *details: Any) -> None:
        """Pass an event on to those that override its method. Accounted for once, not for each: that would cost more
        than most of them take."""
        listening = self._listening.get(event)
        if listening or (listening is None and self._who(event)):
            with self._host.looking(event):
                self.told(event, *details)

    def told(self, event: str, *details: Any) -> None:
        """The same, within a look that the host has begun."""
        for one, method in self._listening.get(event) or self._who(event):
            try:
                method(*details)
            except Exception as error:
                with self._host.looking(_name(one)):
                    if isinstance(error, LacksName) and one in self._all:
                        self.switch_off(one)
                    raise error

    def totals(self, tick: int) -> Iterator[Record]:
        """Everybody's running totals."""
        for one, totals in self._who("totals"):
            with self._host.looking(_name(one)):
                yield from totals(tick)

    def unchecked(self) -> Iterator[Unchecked]:
        """Everybody's gaps."""
        for one, gaps in self._who("unchecked"):
            with self._host.looking(_name(one)):
                yield from gaps()

    def sampled(self, on: bool) -> None:
        """The steps that come are sampled ones, or not."""
        if on is not self._sampled:
            self._sampled = on
            self._listening = {}

    def _woken(self) -> None:
        self._listening = {}

    def _who(self, event: str) -> list[tuple[Watcher, Callable[..., Any]]]:
        """Those that override an event's method, with theirs."""
        found = self._listening.get(event)
        if found is None:
            passed_by = getattr(Watcher, event)
            found = [
                (one, getattr(one, event)) for one in self._all
                if getattr(type(one), event) is not passed_by and not (event in PASSING and self._deaf(one, event))
            ]  # fmt: skip
            self._listening[event] = found
        return found

    def _deaf(self, one: Watcher, event: str) -> bool:
        return one.asleep or event in one.ignored or (one.only_sampled and not self._sampled)


def _name(watcher: Watcher) -> str:
    return (type(watcher).__doc__ or type(watcher).__name__).splitlines()[0].rstrip(".").lower()
