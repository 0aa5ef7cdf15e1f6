"""Runs the probes over one program: hears of events, decides when to look, writes records.

Nothing of the program's is kept alive, no random number is drawn, and whatever goes wrong in here is recorded as
unchecked instead of reaching the program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from torchvet.gc_pause import collector_off
from torchvet.probes import following
from torchvet.probes.session.fault_log import FaultLog
from torchvet.probes.session.step_log import StepsReached
from torchvet.recording.records.base import Program
from torchvet.recording.records.training import Outcome, Probe, Unchecked
from torchvet.recording.writer import RecordingWriter

if TYPE_CHECKING:
    from torchvet.probes.session.observer import Observer


class Options(msgspec.Struct, kw_only=True):
    """What the launcher tells the session. `memory_limit` is bytes; None means the device's or the machine's."""

    directory: str
    path: str
    argv: list[str]
    user_root: str
    code: str | None = None
    """The program itself, where it stood on the command line."""
    steps: int | None = None
    longer: float = 0.0
    """Seconds for which the program goes on once it has taken that many `steps`."""
    memory_limit: int | None = None
    precision_forecast: bool = False
    amp_mode: str | None = None
    attempt: str | None = None
    """A change that may make steps quicker, to be made and timed; see `probes/training/attempts.py`."""
    simulated_gpu: str | None = None
    simulated_gpus: int = 1
    batch_share: float | None = None
    """What share of their batch size loaders get; None leaves them alone."""
    dry: bool = False
    """Whether the simulated GPU works nothing out: only shapes and memory."""
    losses: bool = False
    """Whether the loss of every step is written down."""
    seed: int | None = None
    """What random numbers start from where the program does not say; None leaves them to chance."""
    stop_file: str | None = None
    """The program is stopped at a step boundary once this file is there, as after `steps`."""
    every_step: bool = False
    """Whether all steps are sampled, whatever that costs, and the device's peak is counted anew."""
    thorough: bool = False
    """Whether names are searched early and often, whatever that costs."""
    snapshots: str | None = None
    """Where snapshots of device memory are left; None for the recording's folder."""


_current: Session | None = None
_forks_heard = False
"""Whether forks are heard of: what is registered for that stays for the life of the process."""


def session_of_parent() -> Session | None:
    """The session of the process that this one was forked from, whose probes lie idle here."""
    return _current if _current is not None and _current.ended else None


def session_in_process() -> Session | None:
    """The session that observes this process, if one does."""
    return _current if _current is not None and not _current.ended else None


class Guard:
    """Work whose own failure is kept away from the program."""

    __slots__ = ("_probe", "_session", "_what")

    def __init__(self, session: Session, what: str, probe: Probe) -> None:
        self._session, self._what, self._probe = session, what, probe

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return error is not None and self._session.failed(self._what, error, self._probe)


class Session:
    """One observed program. `start()` waits for torch to be imported; `finish()` takes the last look."""

    def __init__(self, options: Options, writer: RecordingWriter) -> None:
        self.options = options
        self.writer = writer
        self.started = time.perf_counter()
        self.active = False
        self.observer: Observer | None = None
        self.described = False
        """Whether the program and its torch have been written down."""
        self.trying = False
        """Whether the program's own steps are over, and what runs are steps that torchvet has changed (`--dry`)."""
        # A fork has everything of this but the process.
        self._pid = os.getpid()
        self._finished = False
        self._lock = threading.RLock()
        self._failures: set[tuple[str, str]] = set()
        self._faults = FaultLog()
        self._end_wait: Callable[[], None] = lambda: None

    @property
    def ended(self) -> bool:
        """Whether the last look has been taken, or this is a forked child."""
        return self._finished

    def start(self) -> None:
        """Wait for torch. Imports nothing itself."""
        global _current
        _current = self
        # First: an import of torch may crash as well.
        self._faults.begin(self.writer.path)
        from torchvet.probes.session.import_hook import when_imported

        if self.options.seed is not None:
            from torchvet.probes.session.seeding import seed_before_program

            seed_before_program(self.options.seed)
        self._end_wait = when_imported("torch", self._torch_is_here)

    def _torch_is_here(self, torch: ModuleType) -> None:
        # The hook is inherited by the child, which imports torch later.
        if os.getpid() != self._pid:  # forked before there was torch
            following.forked()
            return
        # Before the probes, which ask torch whether there is a device.
        if self.options.simulated_gpu is not None:
            self._simulate(self.options.simulated_gpu)
        if self.options.dry:
            from torchvet.simulate.dry.start import start as start_dry

            start_dry()
        with self.guarded("everything: the probes could not be installed", "everything"):
            # To walk all that torch has just made would take as long as to import the probes.
            with collector_off():
                self.observer = self._observer()
                self.observer.install()
            # Last: nothing of the installation is an event.
            self.active = True
            _hear_forks()
        # After the probes: making them must not draw from it.
        if self.options.seed is not None:
            torch.manual_seed(self.options.seed)

    def _simulate(self, card: str) -> None:
        """Put the GPU into torch. Without it the program would run as another program: better not at all."""
        try:
            from torchvet.simulate.cards import card_of
            from torchvet.simulate.start import start, started

            if not started():
                start(card_of(card), self.options.simulated_gpus)
        except Exception as error:
            import torch

            print(
                f"torchvet: torch {torch.__version__} cannot carry the simulated GPU that --simulate-gpu asks for "
                f"({type(error).__name__}: {error}); torchvet was made for torch 2.13. The program was not run.",
                file=sys.stderr,
            )
            raise SystemExit(2) from error

    def _observer(self) -> Observer:
        if self.options.dry:
            from torchvet.probes.dry.observer import DryObserver

            return DryObserver(self)
        from torchvet.probes.session.observer import Observer

        return Observer(self)

    def _in_child(self) -> None:
        """A forked child would write as if it were this process: it is observed anew once it trains."""
        # The file is the parent's: a child's crash is not the parent's end.
        self._faults.forsake()
        was_ours = self.active
        self.active = False
        self._finished = True
        if self.observer is not None:
            with contextlib.suppress(Exception):
                self.observer.release()
        if was_ours and self is _current:
            with contextlib.suppress(Exception):
                following.forked()

    def guarded(self, what: str, probe: Probe = "another") -> Guard:
        """Keep a probe's own failure away from the program; the report says what was not checked for it."""
        return Guard(self, what, probe)

    def failed(self, what: str, error: BaseException, probe: Probe = "another") -> bool:
        """Something of torchvet's own went wrong: noted as unchecked. Whether it is to be kept from the program."""
        # Exits and interrupts are the program's; `TORCHVET_DEBUG` lets torchvet's own errors through.
        if isinstance(error, StepsReached) or not isinstance(error, Exception) or os.environ.get("TORCHVET_DEBUG"):
            return False
        reason = f"{type(error).__name__}: {error}"
        # A probe that fails in each step would fill the recording.
        if (what, reason) not in self._failures and len(self._failures) < 20:
            self._failures.add((what, reason))
            self.writer.write(Unchecked(check=what, reason=reason[:500], failed=probe))
        return True

    def missed_step(self, error: BaseException) -> bool:
        """What hears of steps failed and may have missed one. Whether the error is to be kept from the program."""
        return self.failed("steps", error, "steps")

    def finish(self, how: str, status: int, error: BaseException | None) -> None:
        """Take the last look while the frames in `error`'s traceback are alive, and say how it ended. Idempotent."""
        # An exit handler and `os._exit` on another thread may both come here.
        with self._lock:
            if self._finished or os.getpid() != self._pid:
                return
            self._finished = True
        # Before the last look: what that computes is none of the program's events.
        self.active = False
        observer = self.observer
        # Written twice: the last one counts, and the first one is there if the process is killed now.
        if error is not None and observer is not None:
            # At once: a launcher that ends the ranks beside one that has failed does not wait for the last look.
            with self.guarded("the outcome could not be described"):
                self._write_outcome(how, status, error, time.perf_counter() - self.started)
        if observer is not None:
            with self.guarded("the last look failed"):
                observer.finish(how, error)
        elapsed = time.perf_counter() - self.started
        with self.guarded("the outcome could not be described"):
            if observer is not None:
                self.writer.write(observer.overhead(elapsed))
            self._write_outcome(how, status, error, elapsed)
        self._faults.end()

    def alive(self) -> None:
        """Python runs in this process: see `FaultLog`."""
        self._faults.alive()

    def process_ends(self) -> None:
        """Nothing of torchvet's is to run any more before the process ends."""
        self._faults.last()

    def release(self) -> None:
        """The process goes on unobserved, and nothing of this session stays."""
        global _current
        self._end_wait()
        self._faults.forsake()
        if _current is self:
            _current = None

    def _write_outcome(self, how: Any, status: int, error: BaseException | None, elapsed: float) -> None:
        observer = self.observer
        # A program that never imported torch has a record of itself, too.
        if not self.described:
            self.writer.write(self.program(str(getattr(sys.modules.get("torch"), "__version__", ""))))
        text = None
        places = []
        if error is not None and how != "steps-reached":
            text = f"{type(error).__name__}: {error}"[:2000]
            places = _places(error)
        ticks = observer.clock.n if observer is not None else 0
        outcome = Outcome(how=how, status=status, ticks=ticks, seconds=elapsed, error=text, stack=places[-12:])
        outcome.place = places[-1] if places else None
        outcome.main_steps = observer.clock.main_steps if observer is not None else 0
        # Past the limit of the recording's size.
        self.writer.write_last(outcome)

    def program(self, torch: str = "", device: str = "none") -> Program:
        """What runs here, and the memory limit in force."""
        from torchvet.probes.base import host

        limit, source = host.memory_limit()
        space = host.address_space()
        if self.options.memory_limit is not None:
            limit, source, space = self.options.memory_limit, "--memory-limit", 0
        rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        return Program(
            argv=self.options.argv, path=self.options.path, cwd=_folder(), python=sys.version.split()[0],
            torch=torch, device=device, started=time.time(), pid=self._pid, memory_limit=limit,
            rank=int(rank) if rank.isdigit() else None, world_size=int(world) if world.isdigit() else None,
            memory_limit_source=source, address_space=space, user_roots=[self.options.user_root],
        )  # fmt: skip


def _hear_forks() -> None:
    """In the child the probes are the parent's, and so is the file that they write to."""
    global _forks_heard
    if not _forks_heard:
        _forks_heard = True
        # Cannot be taken back: hence once for all sessions of the process.
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    if _current is not None and not _current.ended:
        _current._in_child()


def _folder() -> str:
    """The working directory; empty where the program has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _places(error: BaseException) -> list[Any]:
    from traceback import walk_tb

    from torchvet.probes.base import callers

    links = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    return [callers.place_in(code, line) for code, line in links if callers.is_program(code)]
