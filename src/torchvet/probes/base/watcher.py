"""What a probe is: it declares which events it hears and when, and the bus (`session/bus.py`) tells it of them.

A probe that wraps functions of torch's own does so in `install()`, passes every call through unchanged, and asks
`host.active` first: within torchvet's own work, in forked children and after the end nothing counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes.base.callers import Whereabouts
from torchvet.probes.base.clock import StepClock
from torchvet.probes.base.costs import Costs, Look
from torchvet.probes.base.graphs import Late
from torchvet.probes.base.ledger import Ledger, place_of_line
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.internals._importlib_bootstrap_named import named
from torchvet.probes.internals.patching import replace
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.training import Probe, Unchecked, Unwatched

Listener = Callable[[Any, tuple[Any, ...], Any, Any], None]
"""Given an operator, its arguments, its keyword arguments (or None) and its result, below autograd."""


class Host:
    """The session as its probes see it: what they may ask of it, and what they may do. `Observer` is the one there is.

    `known` are root modules, optimizers and their storages, `clock` counts steps, `schedule` says what may be spent;
    `ledger` notes what operators make in sampled steps.
    """

    ledger: Ledger
    tell: Callable[..., None]
    """Tell all probes of an event: its name, and what comes with it."""
    flush_steps: Callable[[], None]
    """Write the steps so far: for a record that goes by them."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.first_boundary: float | None = None
        self.options = session.options
        self.broken: set[Probe] = set()
        """What has failed its self-check (`session/self_checks.py`)."""
        self.started: float = session.started
        # Each thread makes its own passes: another's way would put records to its lines.
        self._here = threading.local()
        self.clock = StepClock()
        self.known = KnownMemory()
        self.schedule = Schedule(every_step=session.options.every_step, thorough=session.options.thorough)
        self.costs = Costs(self.schedule)

    @property
    def active(self) -> bool:
        """Whether events count; not after the end, and not in forked children."""
        return bool(self._session.active)

    @property
    def watching(self) -> bool:
        """Whether the program is observed, also while a thread looks."""
        return bool(self._session.active)

    @property
    def sampling(self) -> bool:
        """Whether operators are being heard."""
        return False

    @property
    def sampled_steps(self) -> int:
        """Steps so far whose operators were heard."""
        return 0

    @property
    def disturbed_steps(self) -> int:
        """Those of them whose time is not the program's."""
        return self.sampled_steps

    @property
    def lightly(self) -> bool:
        """Whether time may count although operators are being heard; `disturbed_steps` says so at the step's end."""
        return False

    @property
    def tick(self) -> int:
        """Step boundaries passed so far."""
        return self.clock.n

    @property
    def step(self) -> int:
        """The number of the step under way, from 1."""
        return self.clock.under_way

    def phase_seconds(self, phase: str) -> float:
        """Seconds so far of the calls that are a phase of the steps: "data", "backward", "optimizer"."""
        return 0.0

    def elapsed(self) -> float:
        """Seconds that the program has been stepping: importing torch is no time to spend from."""
        now = time.perf_counter()
        # Also where it is asked before the first boundary: the clock of budgets starts with the first
        # question.
        if self.first_boundary is None:
            self.first_boundary = now
        return now - self.first_boundary

    def graph_seconds(self) -> float:
        """Seconds that following autograd graphs between boundaries may take now."""
        elapsed = self.elapsed() if self.first_boundary else 0.0
        return self.schedule.graph_budget(elapsed, self.costs.graph_work)

    @property
    def way(self) -> Whereabouts:
        """Where the program stood when the last backward pass of this thread began."""
        return getattr(self._here, "way", [])

    @property
    def record(self) -> Path:
        """The file that records are added to."""
        path: Path = self._session.writer.path
        return path

    def alive(self) -> None:
        """Python runs: asked for now and then, of several ranks."""
        self._session.alive()

    def write(self, record: Record) -> None:
        """Add a record at once."""
        self._session.writer.write(record)

    def hear(self, operators: Iterable[Any], listener: Listener) -> None:
        """Tell `listener` of each of these operators that runs in a sampled step, after it has run."""
        self.ledger.hear(operators, listener, self.looking)

    def line(self) -> Place | None:
        """Within a listener: the user's line whose operator it hears."""
        return place_of_line(self.ledger.line())

    def made_at(self, tensor: Any) -> Place | None:
        """The user's line that made a tensor's storage, if that was in a sampled step."""
        # Living storages only, so that an address that is used again names its new owner.
        birth = self.ledger.live.get(tensor.untyped_storage()._cdata)
        return place_of_line(birth.user) if birth is not None else None

    def sample_evaluation(self, module: torch.nn.Module | None = None) -> None:
        """An evaluation begins, with the call of this module under way: sample it, if so much may be spent."""

    def looking(self, what: str, kind: str = "events") -> Look:
        """Work of torchvet's own: what goes wrong in it is recorded as unchecked (`what`), what it makes is no event,
        and its seconds are accounted for, as those of a `kind` of look (`costs.KINDS`)."""
        return Look(self.costs, kind, self._session.failed, what, self.ledger.pausing)


class Pass(NamedTuple):
    """A call of `backward` (or, with `is_grad`, `autograd.grad`); following its graph ends when `late` says so."""

    tensors: Any
    retain_graph: bool
    create_graph: bool
    is_grad: bool
    late: Late


_PASSES = ("backward_starts", "backward_ended", "optimizer_starts", "optimizer_ended")
EVERY_STEP = frozenset(["batch_asked", "batch_got", *_PASSES, "boundary"])
"""Events of every step. Hearing of one takes microseconds even where nothing is done: a step has emptied the caches."""


class Watcher:
    """A probe hears of the events whose methods it overrides, on the thread where they happen.

    When it hears of what happens in every step is declared by `only_sampled` and `ignored`.
    """

    always = False
    """Whether it is part of runs that time precisions, too."""
    only_sampled: frozenset[str] = frozenset()
    """Events of every step that mean something in sampled steps only. It hears those, and one step more."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._undo = ExitStack()
        self.ignored: frozenset[str] = frozenset()
        """Events of every step that mean nothing to it yet. It hears them from `heed()` on."""
        self.passes_over: frozenset[str] = frozenset()
        """Events of every step that it need not hear in steady steps that are only counted (`session/steady_steps.py`).
        `steps_passed` says how many those were."""
        self.heeding: Callable[[], None] = lambda: None

    def heed(self) -> None:
        """From now on events that were ignored mean something."""
        # Once only: telling the bus makes it sort its listeners anew.
        if self.ignored:
            self.ignored = frozenset()
            self.heeding()

    def pass_over(self, *events: str) -> None:
        """From now on only these events of every step need not be heard in steps that are only counted."""
        if self.passes_over != set(events):
            self.passes_over = frozenset(events)
            self.heeding()

    def hear_in_samples(self, *events: str) -> None:
        """From now on only these events of every step mean nothing outside of sampled steps."""
        if self.only_sampled != set(events):
            self.only_sampled = frozenset(events)
            self.heeding()

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Whether a session with these `Options` has this probe at all. One that times steps has few: what they do each
        step is a step's own time for small programs."""
        return cls.always or (options.amp_mode is None and options.attempt is None)

    def install(self) -> None:
        """Wrap what must be wrapped; called once, when torch has been imported."""

    def remove(self) -> None:
        """Leave torch as it was."""
        self._undo.close()

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Put `wrap(original)` in place of a class's or module's attribute until `remove()`."""
        # From the class's own dictionary: `getattr` would unwrap a classmethod or staticmethod, and binding
        # it again would fail.
        own = owner.__dict__.get(name)
        original = getattr(owner, name) if own is None else own
        replace(self._undo, owner, name, named(owner, original, wrap(original)))

    # Events of every step ---------------------------------------------------------------------------------------

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """A loader's iterator is asked for a batch, by the code that runs in `caller`."""

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """It gave one."""

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """`backward` (or `autograd.grad`) is about to run from these tensors."""

    def backward_ended(self, is_grad: bool) -> None:
        """It returned."""

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """An optimizer's step begins. A scaler that skips a step calls only fused optimizers."""

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """It returned."""

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: the `tick`-th boundary was passed."""

    def steps_passed(self, key: int, steps: int) -> None:
        """So many steps of an optimizer, by identity, have passed: it did not hear of each (`passes_over`)."""

    # Events of some steps ---------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """An optimizer was constructed."""

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """`train()` or `eval()` was called on a module, from outside of torch."""

    def graph_entered(self, one: Pass) -> None:
        """A backward pass that keeps its graph is about to run; any, as long as some probe `waits`."""

    def backward_failed(self) -> None:
        """The pass that began last raised."""

    def loader_ended(self) -> None:
        """A loader had no batch left, or raised."""

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """A root module gave this, in a step that is looked at."""

    def graphs_piled(self, stretch: int, passes: int, kind: StepKind) -> None:
        """In an evaluation (the `stretch`-th) the graphs of so many passes are alive together; or in a training step
        what so many backward calls have left behind."""

    def window_closed(self, tick: int, peak: int, cohort: Any, final: bool) -> None:
        """The ledger has noted a few steps: their peak in bytes, and the storages that outlive them (a `Cohort`)."""

    def settle(self, tick: int, kind: StepKind) -> None:
        """At a boundary where everything is asked for what is due, while the window that may end there is open."""

    def look(self, tick: int, kind: StepKind) -> None:
        """At the same boundaries, after `boundary` and `window_closed`."""

    def names_counted(self, tick: int) -> None:
        """A census has been taken."""

    def restarted(self) -> None:
        """A stronger signal of steps appeared: what was learnt about weaker steps does not compare."""

    # Questions --------------------------------------------------------------------------------------------------

    def waits(self) -> bool:
        """Whether the very next backward pass or boundary means something to it. None is passed over until then."""
        return False

    def wants_modules(self) -> bool:
        """Whether the calls of root modules mean something to it, so that their hooks stay."""
        return False

    def totals(self, tick: int) -> Iterable[Record]:
        """Running totals, asked for after windows and at the end: for one key the last one written counts."""
        return ()

    # The end ----------------------------------------------------------------------------------------------------

    def finish(self, how: str, error: BaseException | None) -> None:
        """The program has ended; its frames are alive only in `error`'s traceback."""

    def last_look(self, how: str, error: BaseException | None) -> None:
        """The same, when torch is as it was and the last window has been closed."""

    def unchecked(self) -> Iterable[Unchecked | Unwatched]:
        """What could not be looked at, asked for at the end."""
        return ()
