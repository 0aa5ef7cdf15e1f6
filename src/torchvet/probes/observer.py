"""Hears what torch does and hands it to the probes; takes the looks that the schedule asks for at step boundaries."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from types import FrameType
from typing import Any

import msgspec
import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes import frames, graphs, heap, host, window
from torchvet.probes.backward import BackwardProbe
from torchvet.probes.census import CensusTaker
from torchvet.probes.clock import StepClock
from torchvet.probes.cohorts import Cohort, Cohorts
from torchvet.probes.collector import CollectorProbe
from torchvet.probes.evaluation import EvaluationProbe
from torchvet.probes.heap_trend import HeapTrend
from torchvet.probes.hook_tables import HookProbe
from torchvet.probes.known import KnownMemory
from torchvet.probes.ledger import Birth, Ledger
from torchvet.probes.loaders import LoaderProbe
from torchvet.probes.optimizers import OptimizerProbe
from torchvet.probes.schedule import Schedule
from torchvet.probes.session import Session, StepLog, StepsReached
from torchvet.probes.sources import SourceKeeper
from torchvet.probes.taps import Taps, compiled_anything
from torchvet.recording.records import StepKind
from torchvet.recording.training_records import Host, Unchecked

_EVALUATION_LOOKS = 3
_PATIENCE = 3
"""Boundaries at which no window could open before names are counted without."""
_WINDOW_SECONDS = 0.25
_OPERATOR_SECONDS = 12e-6
"""What noting one operator costs, roughly: a window may cost a quarter of a second and its share of the run."""


class Observer:
    """The probes of one session, wired to the taps. Exists only once torch is imported."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._write = session.writer.write
        self.clock = StepClock()
        self.known = KnownMemory()
        self._taps = Taps(self)
        self._ledger = Ledger()
        self._ledger.module = self._module_path
        self._schedule = Schedule()
        self._cohorts = Cohorts()
        self._census = CensusTaker(self.known)
        self._amid = CensusTaker(self.known)
        self._optimizers = OptimizerProbe(self.known)
        self._backwards = BackwardProbe()
        self._evaluations = EvaluationProbe()
        self._loaders = LoaderProbe()
        self._hooks = HookProbe()
        self._collector = CollectorProbe(self._ledger)
        self._trend = HeapTrend()
        self._sources = SourceKeeper(self._write)
        self._log = StepLog(session.writer, session.started)
        self._window: window.OpenWindow | None = None
        self._windows = 0
        self._stack: list[torch.nn.Module] = []
        self._in_optimizer = 0
        self._evaluation_looks = 0
        self._busy = False
        self._refused = 0
        self._first_boundary: float | None = None
        self._sampled = 0
        self._step_seconds: deque[float] = deque(maxlen=64)
        self._window_seconds: list[tuple[float, float]] = []
        self._last_boundary = time.perf_counter()
        self._seconds: dict[str, float] = {"windows": 0.0, "censuses": 0.0, "boundaries": 0.0}
        self._plain_backward_seen = False
        self._thread = 0

    @property
    def active(self) -> bool:
        """Whether events count; false after the end, in forked children, and within our own work."""
        return self._session.active and not self._busy

    def install(self) -> None:
        """Start listening."""
        graphs.forget_types()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        program = self._session.program(torch.__version__, device)
        if device == "cuda" and self._session.options.memory_limit is None:
            program.memory_limit = torch.cuda.get_device_properties(0).total_memory
            program.memory_limit_source = torch.cuda.get_device_name(0)
        self._write(program)
        self._taps.install()
        self._taps.watch_modules()
        self._collector.install()

    def release(self) -> None:
        """In a forked child: switch the ledger off; the taps pass everything through."""
        self._ledger.leave()
        self._taps.unwatch_modules()

    # Events -----------------------------------------------------------------------------------------------------

    def step_ended(self) -> None:
        """The program says that a step of its own ended (`watch.step()`)."""
        if self.active:
            self._boundary(self.clock.manual())

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self.clock.optimizer_made(id(optimizer))
        with self._session.guarded("optimizers"):
            self._optimizers.made(optimizer)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self._in_optimizer += 1
        self._optimizer_began = time.perf_counter()
        self._ledger.phase = "optimizer"
        with self._session.guarded("optimizers"):
            self._optimizers.starts(optimizer)

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self._in_optimizer = max(0, self._in_optimizer - 1)
        self._ledger.phase = None
        self._log.add("optimizer", time.perf_counter() - getattr(self, "_optimizer_began", time.perf_counter()))
        with self._session.guarded("optimizers"):
            self._optimizers.ended(optimizer)
        self._boundary(self.clock.optimizer_stepped(id(optimizer)))

    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        """See `Listener`."""
        with self._session.guarded("backward passes"):
            self._ledger.paused = True
            try:
                watching = self._window is not None
                if not is_grad:
                    # `autograd.grad` adds to no `.grad`: it neither needs cleared gradients nor spoils them.
                    self._optimizers.backward_starts(watching)
                self._backwards.starts(tensors, retain_graph, create_graph, is_grad, self.clock.n)
                self._evaluations.backward_starts(_roots(tensors))
            finally:
                self._ledger.paused = False

    def backward_ended(self, seconds: float, is_grad: bool) -> None:
        """See `Listener`."""
        self._log.add("backward", seconds)
        self._check_exhausted()
        with self._session.guarded("backward passes"):
            self._backwards.ended(self.known.storages() if self._backwards.wants_known else ())
        self._plain_backward_seen = self._plain_backward_seen or not is_grad
        if (is_grad and self._plain_backward_seen) or self._in_optimizer:
            self.clock.busy()
            return
        self._boundary(self.clock.backward_ended())

    def backward_failed(self) -> None:
        """See `Listener`."""
        self._backwards.failed()

    def batch_failed(self) -> None:
        """See `Listener`. The loader is at its end, or raised."""
        self._ledger.phase = None

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Listener`."""
        first = False
        with self._session.guarded("loaders"):
            first = self._loaders.asked(iterator, caller)
        no_grad = not torch.is_grad_enabled()
        self._boundary(self.clock.batch_asked(self._taps.watching_modules, first, no_grad))
        self._ledger.phase = "data"

    def batch_got(self, iterator: Any, batch: Any, seconds: float) -> None:
        """See `Listener`."""
        self._ledger.phase = None
        self._log.add("data", seconds)
        with self._session.guarded("loaders"):
            self._loaders.got(iterator, batch, self._ledger if self._window is not None else None)
            self._work_begins()

    def forward_starts(self, module: torch.nn.Module, depth: int) -> None:
        """See `Listener`."""
        if depth == 0:
            self._stack.clear()
            with self._session.guarded("forward passes"):
                self.known.add_root(module)
                self._work_begins()
            self._boundary(self.clock.forward_started(id(module)))
        self._stack.append(module)
        self._check_exhausted()

    def forward_ended(self, module: torch.nn.Module, output: Any, depth: int) -> None:
        """See `Listener`."""
        if self._stack:
            self._stack.pop()
        if depth == 0 and (self._window is not None or self.clock.n < 8 or self._evaluations.accumulating):
            with self._session.guarded("forward passes"):
                self._ledger.paused = True
                known = set(self.known.storages()) if torch.is_grad_enabled() else set()
                self._evaluations.forward_ended(module, output, self.clock.n, known)
                self._ledger.paused = False
                self._look_amid_evaluation()

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Listener`. Evaluation may be a long way from any boundary: look at its first few passes at once."""
        self.clock.mode_changed(training)
        if not training and self._window is None and self._evaluation_looks < _EVALUATION_LOOKS and self.clock.n > 0:
            self._evaluation_looks += 1
            with self._session.guarded("evaluation"):
                self._open_window("evaluation")

    # Looking ----------------------------------------------------------------------------------------------------

    def _boundary(self, kind: StepKind | None) -> None:
        if kind is None:
            return
        start = time.perf_counter()
        self._busy = True
        try:
            with self._session.guarded("step boundaries"):
                self._look(kind, start)
        finally:
            self._busy = False
            now = time.perf_counter()
            self._seconds["boundaries"] += now - start
            self._schedule.spend(now - start)
            self._last_boundary = now
        limit = self._session.options.steps
        if limit is not None and self.clock.counts.get(self.clock.level, 0) >= limit:
            raise StepsReached(limit)

    def _look(self, kind: StepKind, now: float) -> None:
        tick = self.clock.n
        if self._first_boundary is None:
            self._first_boundary = now
        # Budgets go by the time that the program has been stepping: importing torch is no time to spend from.
        elapsed = now - self._first_boundary
        if self.clock.restarted:
            self._restart()
        seconds = now - self._last_boundary
        self._log.boundary(tick, kind, self.clock.steps, _device_memory())
        self._ledger.tick = tick
        self._backwards.boundary(tick)
        self._evaluations.boundary(kind, tick)
        if self._window is None:
            self._stop_watching_modules()
        if self._trend.boundary(tick) and self._schedule.affordable(elapsed, self._census.seconds or 0.03):
            self._schedule.suspect(tick)
        if self._window is not None:
            self._in_window(kind, tick, seconds)
        else:
            self._step_seconds.append(seconds)
        if self._cohorts.due(tick):
            self._check_cohorts(tick)
        if self._schedule.takes_census(tick, elapsed, self._census.seconds):
            self._take_census(tick, kind, elapsed)
        if self._window is None and self._schedule.opens_window(tick, elapsed):
            self._open_window(kind)

    def _restart(self) -> None:
        """A stronger step signal appeared: what was learnt about weaker steps does not compare."""
        self._abandon_window()
        self._cohorts.forget()
        self._schedule = Schedule(spent=self._schedule.spent)

    def _open_window(self, kind: StepKind) -> None:
        start = time.perf_counter()
        if not self._ledger.enter():
            # No storages to note here (inference mode, say): names can be counted all the same.
            self._refused += 1
            if self._refused > _PATIENCE:
                self._schedule.suspect(self.clock.n)
            return
        self._thread = threading.get_ident()
        self._taps.watch_modules()
        self._stack.clear()
        elapsed = start - (self._first_boundary or start)
        self._ledger.operators = 0
        self._ledger.most_operators = int((_WINDOW_SECONDS + self._schedule.share * elapsed) / _OPERATOR_SECONDS)
        self._windows += 1
        length = self._schedule.window_length
        self._window = window.open_window(self._windows, self.clock.n, kind, length, self.known, self._ledger, start)
        self._seconds["windows"] += time.perf_counter() - start

    def _in_window(self, kind: StepKind, tick: int, seconds: float) -> None:
        open_one = self._window
        if open_one is None or threading.get_ident() != self._thread:
            return
        self._sampled += 1
        window.pass_boundary(open_one, self._ledger, kind)
        usual = statistics.median(self._step_seconds) if self._step_seconds else seconds
        excess = max(0.0, seconds - usual)
        self._schedule.spend(excess)
        self._seconds["windows"] += excess
        self._optimizers.look_for_unowned()
        if len(open_one.ticks) >= open_one.length:
            self._close_window(open_one, tick)

    def _close_window(self, open_one: window.OpenWindow, tick: int, partial: bool = False) -> None:
        ledger = self._ledger
        if not ledger.can_leave:
            ledger.stopped = True
            return
        ledger.leave()
        self._stop_watching_modules()
        self._window = None
        records = window.close_window(open_one, tick, ledger, self.known, time.perf_counter())
        for record in records:
            self._write(record)
        peak = records[0].peak
        if self._trend.peak(peak):
            # One tensor that is replaced by a larger one leaves no survivors: the peak is all that tells.
            self._schedule.suspect(tick)
        self._backwards.peak = max(self._backwards.peak, peak)
        self._evaluations.peak = max(self._evaluations.peak, peak)
        alive = _survivors(ledger)
        # A step that was noted in part gives survivors but no rate.
        steps = 0 if partial else max(1, len(open_one.ticks))
        self._cohorts.add(Cohort(open_one.id, tick, steps, alive))
        ledger.forget_window()
        self._schedule.window_closed(tick)
        self._totals(tick)

    def _stop_watching_modules(self) -> None:
        """Module hooks cost time: they stay only where forward passes make the steps, or an evaluation keeps graphs."""
        if self.clock.level in ("training", "backward", "manual") and not self._evaluations.accumulating:
            self._taps.unwatch_modules()

    def _abandon_window(self) -> None:
        if self._window is not None and self._ledger.can_leave:
            self._ledger.leave()
            self._window = None
            self._ledger.forget_window()

    def _check_cohorts(self, tick: int) -> None:
        for record in self._cohorts.check(tick, lambda: dict(self.known.storages())):
            self._write(record)
        if self._cohorts.suspicious():
            self._schedule.suspect(tick)

    def _take_census(self, tick: int, kind: StepKind, elapsed: float, final: bool = False) -> None:
        self._census.budget = self._schedule.census_budget(elapsed)
        census = self._census.take(tick, kind, self._ledger, final)
        self._write(census)
        self._schedule.census_taken(tick, elapsed)
        self._seconds["censuses"] += census.seconds
        self._hooks.census(tick, self.known, self._write)
        self._sources.keep()

    def _look_amid_evaluation(self) -> None:
        """Who keeps the graphs of an evaluation that is not over: its variables may be gone at the next boundary."""
        passes = self._evaluations.due()
        if passes:
            self._amid.budget = self._schedule.census_budget(time.perf_counter() - self._session.started)
            census = self._amid.take(self.clock.n, "evaluation", self._ledger)
            self._write(msgspec.structs.replace(census, amid=self._evaluations.stretch, passes=passes))
            self._schedule.spend(census.seconds)
            self._seconds["censuses"] += census.seconds
            self._sources.keep()

    def _totals(self, tick: int) -> None:
        """Write the running totals: what they say counts if the program is killed next."""
        for record in (
            *self._optimizers.records(), *self._backwards.records(), *self._evaluations.records(),
            *self._optimizers.sparse_gradients(tick), *self._loaders.records(tick),
        ):  # fmt: skip
            self._write(record)
        self._write(self._collector.record(self._sampled))
        self._write(Host(tick=tick, resident=host.resident(), heap=host.heap_in_use() if host.heap_in_use else None))
        self._hooks.count(tick, self.known, self._write)
        self._sources.keep()

    def finish(self, how: str, error: BaseException | None) -> None:
        """The last look. When `main()` has returned its variables are gone; those of an exception's frames are not."""
        tick = self.clock.n
        self._busy = True
        self._ledger.leave()
        self._collector.remove()
        self._taps.remove()
        elapsed = time.perf_counter() - self._session.started
        self._evaluations.boundary(self.clock.level, tick, final=True)
        open_one, self._window = self._window, None
        if open_one is not None and open_one.ticks:
            for record in window.close_window(open_one, tick, self._ledger, self.known, time.perf_counter()):
                self._write(record)
            alive = _survivors(self._ledger)
            self._cohorts.add(Cohort(open_one.id, tick, len(open_one.ticks), alive))
        for record in self._cohorts.check(tick, lambda: dict(self.known.storages()), everything=True):
            self._write(record)
        self._census.extra_frames = frames.traceback_frames(error)
        suspected = self._schedule.suspected or self._schedule.censuses or self._cohorts.suspicious()
        if suspected or how in ("out-of-memory", "exception"):
            self._take_census(tick, self.clock.level, elapsed, final=True)
        self._census.extra_frames = []
        self._totals(tick)
        self._say_unchecked()
        # Classes of the program's own must not outlive it in our caches: their destructors would run too late.
        heap.forget_types()
        graphs.forget_types()

    def _say_unchecked(self) -> None:
        if self._ledger.broken is not None:
            error = self._ledger.broken
            self._write(Unchecked(check="storages of sampled steps", reason=f"{type(error).__name__}: {error}"))
        if self._census.unreadable:
            names = ", ".join(sorted(self._census.unreadable)[:5])
            self._write(
                Unchecked(
                    check=f"variables of {names}()",
                    reason="it calls locals(), whose dictionary may not be refreshed behind its back",
                )
            )
        if not self._windows and self.clock.n:
            self._write(Unchecked(check="storages of sampled steps", reason="no step was free of other dispatch modes"))
        if compiled_anything():
            self._write(
                Unchecked(
                    check="inside torch.compile regions", reason="compiled kernels allocate out of the ledger's sight"
                )
            )

    def costs(self) -> tuple[dict[str, float], int, float]:
        """Seconds by kind of look, sampled steps, and the sampled steps' excess in seconds."""
        return self._seconds, self._sampled, self._seconds["windows"]

    def _module_path(self) -> str | None:
        return self.known.name_of(self._stack[-1]) if self._stack else None

    def _check_exhausted(self) -> None:
        """End a window in the middle of a step that turned out to be too long for it."""
        open_one = self._window
        over = self._ledger.exhausted or self._ledger.stopped
        if open_one is not None and over and threading.get_ident() == self._thread:
            self._busy = True
            try:
                self._close_window(open_one, self.clock.n + 1, partial=True)
            finally:
                self._busy = False

    def _work_begins(self) -> None:
        if self._window is not None:
            window.next_forward_begins(self._window, self._ledger)


def _survivors(ledger: Ledger) -> list[Birth]:
    """The window's storages that are alive at its end."""
    return [b for b in (*ledger.births, *ledger.outside) if b.died is None and b.op != "adopted"]


def _roots(tensors: Any) -> list[Any]:
    items = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    return [t.grad_fn for t in items if isinstance(t, torch.Tensor) and t.grad_fn is not None]


def _device_memory() -> tuple[int, int] | None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return None
