"""Hears what torch does and hands it to the probes; takes the looks that the schedule asks for at step boundaries."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import FrameType
from typing import Any, cast

import msgspec
import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes.base import frames, graphs, host, watcher
from torchvet.probes.base.backward import BackwardProbe
from torchvet.probes.base.clock import StepClock
from torchvet.probes.base.collector import CollectorProbe
from torchvet.probes.base.costs import Costs, Look
from torchvet.probes.base.hooks import Listener, Sheltered, Taps, sheltered
from torchvet.probes.base.ledger import Ledger, place_of_line
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.base.schedule import EARLY_ALLOWANCE, SUSPECT_CENSUSES, Pace, Schedule
from torchvet.probes.base.unchecked import all_gaps
from torchvet.probes.internals import device
from torchvet.probes.memory.census import CensusTaker, forget_the_program
from torchvet.probes.memory.cohorts import Cohorts
from torchvet.probes.memory.heap_trend import HeapTrend
from torchvet.probes.objects.hook_tables import HookProbe
from torchvet.probes.session.sampling import Closed, Sampling
from torchvet.probes.session.self_checks import Proofs
from torchvet.probes.session.session import Options, Session, StepLog, StepsReached
from torchvet.probes.session.sources import SourceKeeper
from torchvet.probes.session.stepping import Boundary, Stepping
from torchvet.probes.session.watchers import WATCHERS, load
from torchvet.probes.training.evaluation import EvaluationProbe
from torchvet.probes.training.loaders import LoaderProbe
from torchvet.probes.training.optimizers import OptimizerProbe
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.training import Overhead

_EVALUATION_LOOKS = 3
_EARLY = 8
"""Steps at first whose forward passes are all looked at: an evaluation may come before any training."""


class Observer:
    """The probes of one session, wired to the taps. Exists only once torch is imported."""

    watchers = WATCHERS

    def __init__(self, session: Session) -> None:
        self._session = session
        self._write = session.writer.write
        self.clock = StepClock()
        self.known = KnownMemory()
        self._taps = Taps(cast(Listener, Sheltered(self, session.missed_step)))
        self.step_ended = sheltered(self._step_ended, session.missed_step)
        """The program says that a step of its own ended (`watch.step()`)."""
        self._schedule = Schedule()
        self._costs = Costs(self._schedule)
        self._sampling = Sampling(self.known, self._taps, self._schedule, self._costs)
        self._ledger = self._sampling.ledger
        self._cohorts = Cohorts()
        self._census, self._amid = CensusTaker(self.known), CensusTaker(self.known)
        self._optimizers = OptimizerProbe(self.known)
        self._backwards = BackwardProbe()
        self._evaluations = EvaluationProbe()
        self._loaders = LoaderProbe()
        self._hooks = HookProbe()
        self._collector = CollectorProbe(self._ledger)
        self._trend = HeapTrend()
        self._sources = SourceKeeper(self._write)
        self._watchers = watcher.Watchers(self, load(self.watchers, session.failed))
        self._log = StepLog(session.writer, session.started)
        self._stepping = Stepping(self.clock, self._log)
        self._limit = session.options.steps
        self._optimizer_began = 0.0
        self._evaluation_looks = 0
        self._pace = Pace()
        self._first_boundary: float | None = None
        self._proofs = Proofs(self._write, self._ledger, self._watchers)

    @property
    def active(self) -> bool:
        """Whether events count; not after the end, in forked children, and while a thread looks."""
        return self._session.active and self._stepping.free

    @property
    def tick(self) -> int:
        """See `Host`."""
        return self.clock.n

    @property
    def step(self) -> int:
        """See `Host`."""
        return self.clock.under_way

    @property
    def sampling(self) -> bool:
        """See `Host`."""
        return self._sampling.on

    @property
    def options(self) -> Options:
        """See `Host`."""
        return self._session.options

    @property
    def ledger(self) -> Ledger:
        """See `Host`."""
        return self._ledger

    def write(self, record: Record) -> None:
        """See `Host`."""
        self._write(record)

    def hear(self, operators: Iterable[Any], listener: watcher.Listener) -> None:
        """See `Host`."""
        self._ledger.hear(operators, listener, self.looking)

    def line(self) -> Place | None:
        """See `Host`."""
        return place_of_line(self._ledger.line())

    def made_at(self, tensor: Any) -> Place | None:
        """See `Host`."""
        birth = self._ledger.live.get(tensor.untyped_storage()._cdata)
        return place_of_line(birth.user) if birth is not None else None

    def looking(self, what: str, kind: str = "events") -> Look:
        """See `Host`."""
        return Look(self._costs, kind, self._session.failed, what, self._ledger)

    def install(self) -> None:
        """Start listening."""
        graphs.forget_types()
        program = self._session.program(torch.__version__, "cuda" if torch.cuda.is_available() else "cpu")
        device.describe(program, self.options.memory_limit is not None, self.options.simulated_gpu is not None)
        self._write(program)
        self._session.described = True
        self._proofs.begin()
        self._taps.install()
        self._taps.watch_modules()
        self._collector.install()
        self._watchers.install()

    def release(self) -> None:
        """In a forked child: switch the ledger off; the taps pass everything through."""
        self._ledger.leave()
        self._taps.unwatch_modules()

    def forsake(self) -> None:
        """In a forked child that is to be observed anew: take the probes out."""
        self._taps.remove()
        self._collector.remove()
        self._watchers.remove()

    # Events -----------------------------------------------------------------------------------------------------

    def _step_ended(self) -> None:
        if self.active:
            self._boundary(self._stepping.passed(self.clock.manual))

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self.clock.optimizer_made(id(optimizer))
        with self._session.guarded("optimizers"):
            self._optimizers.made(optimizer)
        self._watchers.tell("optimizer_made", optimizer)

    def optimizer_starts(self, optimizer: Optimizer, closure: bool = False) -> None:
        """See `Listener`."""
        self._stepping.optimizer_starts()
        self._ledger.phase, self._ledger.closure = "optimizer", closure
        with self.looking("optimizers"):
            try:
                self._optimizers.starts(optimizer)
            finally:
                self._watchers.told("optimizer_starts", optimizer)
        self._optimizer_began = time.perf_counter()

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Listener`."""
        self._log.add("optimizer", time.perf_counter() - self._optimizer_began)
        self._ledger.phase = None
        with self.looking("optimizers"):
            try:
                self._optimizers.ended(optimizer)
            finally:
                self._watchers.told("optimizer_ended", optimizer)
        self._boundary(self._stepping.optimizer_ended(id(optimizer)))

    def ended_aside(self, optimizer: Optimizer | None, is_grad: bool = False) -> None:
        """See `Listener`."""
        if self._session.active:
            self._stepping.ended_aside(optimizer, is_grad)

    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        """See `Listener`."""
        with self.looking("backward passes"):
            try:
                if not is_grad:
                    # `autograd.grad` adds to no `.grad`: it neither needs cleared gradients nor spoils them.
                    self._optimizers.backward_starts(self._sampling.on)
                waiting = self._pace.steady is None and (self._backwards.waiting or self._evaluations.waiting)
                if waiting or retain_graph or create_graph:
                    self._follow_backward(tensors, retain_graph, create_graph, is_grad)
            finally:
                self._watchers.told("backward_starts", tensors, is_grad)

    def _follow_backward(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        self._pace.steady = None
        with self.looking("backward passes", "graphs"):
            late = graphs.within(self._graph_budget())
            self._backwards.starts(tensors, retain_graph, create_graph, is_grad, self.clock.n, late)
            self._evaluations.backward_starts(graphs.roots_of(tensors), late)

    def backward_ended(self, seconds: float, is_grad: bool) -> None:
        """See `Listener`."""
        self._log.add("backward", seconds)
        if self._pace.steady is None:
            self._end_if_overdue()
            with self._session.guarded("windows"):
                self._sampling.backward_ended()
            if self._backwards.wants_known:
                with self.looking("backward passes", "graphs"):
                    self._backwards.ended(self.known.storages(), graphs.within(self._graph_budget()))
        self._watchers.tell("backward_ended", is_grad)
        self._boundary(self._stepping.backward_ended(is_grad))

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
        self._boundary(self._stepping.passed(self.clock.batch_asked, self._taps.watching_modules, first, no_grad))
        self._ledger.phase = "data"

    def batch_got(self, iterator: Any, batch: Any, seconds: float) -> None:
        """See `Listener`."""
        self._ledger.phase = None
        self._log.add("data", seconds)
        with self.looking("loaders"):
            try:
                self._loaders.got(iterator, batch, self._ledger if self._sampling.on else None)
            finally:
                self._watchers.told("batch_got", batch)
        self._work_begins()

    def forward_starts(self, module: torch.nn.Module, depth: int) -> None:
        """See `Listener`."""
        if depth == 0:
            self._sampling.stack.clear()
            with self._session.guarded("forward passes"):
                self.known.add_root(module)
            self._work_begins()
            self._boundary(self._stepping.passed(self.clock.forward_started, id(module)))
        self._sampling.stack.append(module)
        self._end_if_overdue()

    def forward_ended(self, module: torch.nn.Module, output: Any, depth: int) -> None:
        """See `Listener`."""
        if self._sampling.stack:
            self._sampling.stack.pop()
        if depth == 0 and (self._sampling.on or self.clock.n < _EARLY or self._evaluations.accumulating):
            with self._session.guarded("forward passes"), self._costs.of("graphs"):
                self._look_at_output(module, output)
            self._watchers.tell("forward_ended", output)
            with self._session.guarded("evaluation"), self._costs.of("censuses"):
                self._look_amid_evaluation()

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Listener`. Evaluation may be a long way from any boundary: look at its first few passes at once."""
        self.clock.mode_changed(training)
        if not training and not self._sampling.on and self._evaluation_looks < _EVALUATION_LOOKS and self.clock.n > 0:
            self._evaluation_looks += 1
            with self._session.guarded("evaluation"), self._costs.of("windows"):
                self._start_window("evaluation", self.clock.n, self._elapsed())

    # Looking ----------------------------------------------------------------------------------------------------

    def _elapsed(self) -> float:
        """Seconds that the program has been stepping: importing torch is no time to spend from."""
        now = time.perf_counter()
        if self._first_boundary is None:
            self._first_boundary = now
        return now - self._first_boundary

    def _graph_budget(self) -> float:
        return self._schedule.graph_budget(self._elapsed() if self._first_boundary else 0.0, self._costs.graph_work)

    def _work_begins(self) -> None:
        if self._sampling.on:
            with self._session.guarded("step boundaries"), self._costs.of("graphs"):
                self._sampling.work_begins(graphs.within(self._graph_budget()))

    def _look_at_output(self, module: torch.nn.Module, output: Any) -> None:
        """Does the pass that just ended build a graph?"""
        budget = self._graph_budget()
        if budget <= 0:
            return self._evaluations.passed_by(module)
        with self._ledger.quiet():
            known = set(self.known.storages()) if torch.is_grad_enabled() else set()
            self._evaluations.forward_ended(module, output, self.clock.n, known, graphs.within(budget))

    def _boundary(self, passed: Boundary | None) -> None:
        if passed is None:
            return
        with self._stepping.turn(passed) as mine:
            if mine:
                self._look_or_count(self._stepping.resumed(passed))
        if self._limit is not None and self.clock.main_steps >= self._limit:
            raise StepsReached(self._limit)

    def _look_or_count(self, passed: Boundary) -> None:
        kind, tick, *_ = passed
        if self._pace.due(kind, tick, time.perf_counter()) or passed.restarted or passed.steps > 1:
            seconds = self._costs.step() / self._pace.since(tick)
            with Look(self._costs, "boundaries", self._session.failed, "step boundaries"):
                self._look(passed, seconds)
            return
        with self.looking("step boundaries", "boundaries"):
            self._stepping.count(passed)
            self._ledger.tick = tick
            self._watchers.told("boundary", tick, kind)

    def _look(self, passed: Boundary, seconds: float) -> None:
        """Asks everything for what is due; a step took the program `seconds`."""
        kind, tick, elapsed = passed.kind, passed.tick, self._elapsed()
        self._proofs.check()
        if passed.restarted:
            self._restart()
        self._stepping.write(passed, device.memory())
        self._ledger.tick = tick
        self._backwards.boundary(tick)
        self._evaluations.boundary(kind, tick)
        with self._ledger.quiet():
            self._watchers.told("boundary", tick, kind)
        if not self._sampling.on:
            self._watchers.sampled(False)
            self._stop_watching_modules()
        # A heap that rises once may do so for many reasons; one that goes on is looked into at any cost.
        rises = self._trend.boundary(tick)
        if rises and (self._trend.times > 1 or self._schedule.affordable(elapsed, self._census.seconds or 0.03)):
            self._schedule.suspect(tick)
        due = self._sampling.boundary(kind, seconds)
        if self._sampling.on:
            self._optimizers.look_for_unowned()
        if due:
            with self._costs.of("windows"):
                self._end_window(tick)
        if self._cohorts.due(tick):
            self._check_cohorts(tick)
        # What is learnt about parts of steps is void once they are known for that: names cost too much for it.
        if not self.clock.provisional and self._schedule.takes_census(tick, elapsed, self._census.seconds):
            self._take_census(tick, kind, elapsed)
        if not self._sampling.on and self._schedule.opens_window(tick, elapsed):
            with self._costs.of("windows"):
                self._start_window(kind, tick, elapsed)
        self._pace.asked(kind, tick, time.perf_counter(), self._nothing_open())

    def _nothing_open(self) -> bool:
        """Whether what was begun is at its end: it is to hear of every boundary until then."""
        measuring = self._schedule.suspected and self._schedule.censuses < SUSPECT_CENSUSES
        waiting = self._backwards.waiting or self._evaluations.waiting
        return not (self._sampling.on or measuring or waiting or self._taps.watching_modules)

    def _start_window(self, kind: StepKind, tick: int, elapsed: float) -> None:
        self._pace.steady = None
        self._sampling.start(kind, tick, elapsed)
        self._watchers.sampled(True)

    def _restart(self) -> None:
        """A stronger step signal appeared: what was learnt about weaker steps does not compare."""
        self._log.flush()
        self._sampling.abandon()
        self._cohorts.forget()
        self._schedule.restart()
        self._costs.restart()
        self._trend.restart()

    def _end_window(self, tick: int, partial: bool = False) -> None:
        self._log.flush()
        if (closed := self._sampling.end(tick, partial)) is None:
            return
        self._stop_watching_modules()
        if self._trend.peak(closed.peak):
            # One tensor that is replaced by a larger one leaves no survivors: the peak is all that tells.
            self._schedule.suspect(tick)
        self._keep(closed)
        self._schedule.window_closed(tick)
        self._totals(tick)

    def _keep(self, closed: Closed) -> None:
        for record in closed.records:
            self._write(record)
        self._backwards.peak = max(self._backwards.peak, closed.peak)
        self._evaluations.peak = max(self._evaluations.peak, closed.peak)
        self._cohorts.add(closed.cohort)

    def _end_if_overdue(self) -> None:
        """End a window in the middle of a step that turned out to be too long for it."""
        if self._sampling.overdue:
            with self._stepping.turn() as mine, self._session.guarded("step boundaries"), self._costs.of("windows"):
                if mine:
                    self._end_window(self.clock.n + 1, partial=True)

    def _stop_watching_modules(self) -> None:
        """Module hooks cost time: they stay only where forward passes make the steps, or an evaluation keeps graphs."""
        if self.clock.level in ("training", "backward", "manual") and not self._evaluations.accumulating:
            self._taps.unwatch_modules()

    def _check_cohorts(self, tick: int) -> None:
        self._log.flush()
        for record in self._cohorts.check(tick, lambda: dict(self.known.storages())):
            self._write(record)
        if self._cohorts.suspicious():
            self._schedule.suspect(tick)

    def _take_census(self, tick: int, kind: StepKind, elapsed: float, final: bool = False) -> None:
        if not self._proofs.hold_for("names"):
            return self._schedule.census_taken(tick, elapsed)
        self._log.flush()
        self._census.budget = self._schedule.census_budget(elapsed, final)
        with self._costs.of("censuses"):
            census = self._census.take(tick, kind, self._ledger, final)
            if census.complete or self._census.budget > EARLY_ALLOWANCE:  # else an early look that says nothing
                self._write(census)
        self._schedule.census_taken(tick, elapsed, self._census.anew)
        self._hooks.census(tick, self.known, self._write)
        self._sources.keep()

    def _look_amid_evaluation(self) -> None:
        """Who keeps the graphs of an evaluation that is not over: its variables may be gone at the next boundary."""
        passes = self._evaluations.due()
        if passes and self._proofs.hold_for("names"):
            self._amid.budget = self._schedule.census_budget(time.perf_counter() - self._session.started)
            census = self._amid.take(self.clock.n, "evaluation", self._ledger)
            self._write(msgspec.structs.replace(census, amid=self._evaluations.stretch, passes=passes))
            self._sources.keep()

    def _totals(self, tick: int) -> None:
        """Write the running totals: what they say counts if the program is killed next."""
        for record in (
            *self._optimizers.records(), *self._backwards.records(), *self._evaluations.records(),
            *self._optimizers.sparse_gradients(tick), *self._loaders.records(tick), *self._watchers.totals(tick),
            self._collector.record(self._sampling.steps), host.record(tick),
        ):  # fmt: skip
            self._write(record)
        self._hooks.count(tick, self.known, self._write)
        self._sources.keep()

    def finish(self, how: str, error: BaseException | None) -> None:
        """The last look. When `main()` has returned its variables are gone; those of an exception's frames are not."""
        self._stepping.end()
        with self._costs.of("end"):
            self._finish(how, error)
        forget_the_program()

    def _finish(self, how: str, error: BaseException | None) -> None:
        tick = self.clock.n
        self._log.flush()
        closed = self._sampling.end_for_good(tick)
        self._collector.remove()
        self._watchers.tell("finish", how, error)
        self._watchers.remove()
        self._taps.remove()
        elapsed = time.perf_counter() - self._session.started
        self._evaluations.boundary(self.clock.level, tick, final=True)
        if closed is not None:
            self._keep(closed)
        for record in self._cohorts.check(tick, lambda: dict(self.known.storages()), everything=True):
            self._write(record)
        self._census.extra_frames = self._sources.standing = frames.traceback_frames(error)
        suspected = self._schedule.suspected or self._cohorts.suspicious() or how in ("out-of-memory", "exception")
        if suspected or self._schedule.censuses:
            self._take_census(tick, self.clock.level, elapsed, final=True)
        self._totals(tick)
        self._census.extra_frames = self._sources.standing = []
        unreadable = self._census.unreadable if suspected else set()  # else it is nobody's question
        simulated, sampled = self.options.simulated_gpu is not None, bool(self._sampling.windows) or not tick
        probes = (self._watchers, self._backwards, self._evaluations, self._stepping)
        for gap in all_gaps(simulated, self._ledger, unreadable, sampled, probes):
            self._write(gap)
        self._proofs.end()

    def overhead(self, elapsed: float) -> Overhead:
        """What looking has cost of `elapsed` seconds."""
        self._costs.settle()
        return Overhead(elapsed=elapsed, seconds=self._costs.seconds, sampled_steps=self._sampling.steps)
