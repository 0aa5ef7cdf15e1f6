"""Looks at step boundaries for what is due: windows open and close, and probes are asked for what they have seen."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, cast

from torchvet.probes.base import graphs
from torchvet.probes.base.callers import Whereabouts
from torchvet.probes.base.costs import Look
from torchvet.probes.base.hooks import Listener, Sheltered, Taps
from torchvet.probes.base.schedule import Pace
from torchvet.probes.base.unchecked import simulated_gaps, unchecked
from torchvet.probes.base.watcher import Host
from torchvet.probes.internals import device
from torchvet.probes.memory.census import forget_the_program
from torchvet.probes.session.bus import PROBES, Bus, load
from torchvet.probes.session.sampling import Closed, Sampling
from torchvet.probes.session.self_checks import Proofs
from torchvet.probes.session.steady_steps import SteadySteps
from torchvet.probes.session.step_log import StepLog, StepsReached
from torchvet.probes.session.stepping import Boundary, Stepping
from torchvet.recording.records.base import StepKind
from torchvet.recording.records.training import Overhead

if TYPE_CHECKING:
    import torch

    from torchvet.probes.session.session import Session

_ASK_EVERY = 0.5
"""Seconds between two looks for the file that stops the program."""
_EVALUATION_LOOKS = 3
_EVALUATION_STEPS = 2
"""Steps of a window that an evaluation opens: what follows the evaluation is mostly training, which has its own."""


class Looks(Host):
    """A session's host with its windows and its probes; the part of `Observer` that goes by step boundaries."""

    probes = PROBES

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._pace = Pace()
        self.missed_step = session.missed_step
        self.steady = SteadySteps(self)
        # The order of these lines: each part asks the ones above it as it is made.
        self._taps = Taps(cast(Listener, Sheltered(cast(Listener, self), self.missed_step, self._timed)), self.steady)
        self._sampling = Sampling(self.known, self._taps, self.schedule, self.costs)
        self.ledger = self._sampling.ledger
        self.bus = Bus(self, load(self.probes, session.failed), self._pace)
        self.tell = self.bus.tell
        self.log = StepLog(session.writer, session.started)
        self.flush_steps = self.log.flush
        self.stepping = Stepping(self.clock, self.log)
        self._proofs = Proofs(self, self.bus)
        self._evaluation_looks = 0
        if session.options.attempt is not None:  # steps are timed: none is to be a sampled one
            # No window ever opens.
            self.schedule.window_at, self._evaluation_looks = sys.maxsize, _EVALUATION_LOOKS
        self._passed = self._next_asked = 0.0
        """When the last boundary was passed."""
        self._until: float | None = None
        """When the program has gone on for long enough after the steps that were asked for."""
        self._before_end = 0.0
        """What looking had cost when the program ended."""

    @property
    def active(self) -> bool:
        """Whether events count; not after the end, in forked children, and while a thread looks."""
        # While one thread looks all others are deaf: see `stepping`.
        return self._session.active and not self.stepping.looking

    @property
    def sampling(self) -> bool:
        """See `Host`."""
        return self._sampling.on

    @property
    def sampled_steps(self) -> int:
        """See `Host`."""
        return self._sampling.steps

    @property
    def disturbed_steps(self) -> int:
        """See `Host`."""
        return self._sampling.disturbed

    @property
    def lightly(self) -> bool:
        """See `Host`."""
        return self._sampling.lightly

    def phase_seconds(self, phase: str) -> float:
        """See `Host`."""
        return self.log.seconds(phase)

    def _timed(self) -> Look | None:
        return None if self._pace.untimed else self.costs.of("events")

    # Boundaries ---------------------------------------------------------------------------------------------------

    def _boundary(self, passed: Boundary | None) -> None:
        if passed is None:
            return
        stepping = self.stepping
        # Else the boundary was counted, and this thread goes on at once.
        if stepping.take_turn(passed):
            try:
                self._look_or_count(stepping.resumed(passed))
            finally:
                stepping.end_turn()
        # Outside of the turn and of every guard: this is to reach the program.
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        limit, reached = self.options.steps, self.clock.main_steps
        # Steps of the kind that marks them: evaluations between do not count.
        if limit is not None and reached >= limit and self._has_gone_on():
            raise StepsReached(reached if self.options.longer else limit)
        if self.options.stop_file is not None and self._told_to_stop(self.options.stop_file):
            raise StepsReached(self.clock.main_steps)

    def _has_gone_on(self) -> bool:
        """Whether the program has gone on for as long as it was to after the steps that were asked for."""
        if self._until is None:
            self._until = time.perf_counter() + self.options.longer
        return time.perf_counter() >= self._until

    def _told_to_stop(self, file: str) -> bool:
        """Whether the supervisor has seen enough. Asked twice a second: it takes longer than a boundary."""
        if self._passed < self._next_asked:
            return False
        self._next_asked = self._passed + _ASK_EVERY
        return os.path.exists(file)

    def _look_or_count(self, passed: Boundary) -> None:
        if self._is_due(passed, time.perf_counter()):
            # Told now how many steps they have missed, before they are asked anything.
            self.steady.end()
            self.costs.stands_for, self._pace.untimed = 1, False
            # Of one step, where several were only counted.
            seconds = self.costs.step() / self._pace.since(passed.tick)
            # The ledger is not paused for all of it: a window that opens or ends here would lose its place.
            with Look(self.costs, "boundaries", self._session.failed, "step boundaries"):
                self._look(passed, seconds)
            return
        if self._pace.untimed:
            self._count(passed)
        else:
            with self.looking("step boundaries", "boundaries"):
                self._count(passed)
        self._counted(passed)

    def _is_due(self, passed: Boundary, now: float) -> bool:
        self._passed = now
        return passed.restarted or passed.steps > 1 or self._pace.due(passed.kind, passed.tick, now)

    def steady_step_ended(self, passed: Boundary | None, now: float) -> None:
        """The same as `_boundary` for a steady step. Counting takes no turn: a thread that looks goes on doing so."""
        if passed is None:
            return
        # Another thread looks: this boundary takes the way that counts aside.
        if self._pace.due(passed.kind, passed.tick, now) or self.stepping.looking:
            self._boundary(passed)
            return
        self._passed = now
        self._count(passed)
        self.costs.stands_for = self._pace.counted(passed.tick)
        if not self._pace.untimed:
            self.steady.begin(passed.kind, timed=True)
        self._stop_at_limit()

    def _counted(self, passed: Boundary) -> None:
        self.costs.stands_for = self._pace.counted(passed.tick)
        if self._pace.steady is not None:
            self.steady.begin(passed.kind, not self._pace.untimed)

    def _count(self, passed: Boundary) -> None:
        self.stepping.count(passed)
        self.ledger.tick = passed.tick
        self.bus.told("boundary", passed.tick, passed.kind)

    def _look(self, passed: Boundary, seconds: float) -> None:
        """Ask everything for what is due; a step took the program `seconds`."""
        kind, tick, elapsed = passed.kind, passed.tick, self.elapsed()
        # They wait for a boundary at which no mode of the program's is on.
        self._proofs.check()
        if passed.restarted:
            self._restart()
        self.stepping.write(passed, device.memory())
        self.ledger.tick = tick
        # Probes first, while the window that may end here is open: this step is one of its own.
        with self.ledger.quiet():
            self.bus.told("settle", tick, kind)
            self.bus.told("boundary", tick, kind)
        # The step after a window is heard as one more: totals that span a boundary end there.
        if not self._sampling.on:
            self.bus.sampled(False)
            self._stop_watching_modules()
        if self._sampling.boundary(kind, seconds):
            with self.costs.of("windows"):
                self._end_window(tick)
        # Then what goes by the window's survivors, which may want the next one sooner.
        self.bus.told("look", tick, kind)
        if not self._sampling.on and self.schedule.opens_window(tick, elapsed):
            self._start_window(kind, tick, elapsed, self.schedule.length(elapsed, self.costs.sampled))
        # Last: whatever was begun above makes the next step one that is not steady.
        self._pace.asked(kind, tick, time.perf_counter(), self._is_steady())
        if self._pace.untimed:
            self.steady.begin(kind, timed=False)

    def disturb(self) -> None:
        """Something begins that is to hear of every boundary."""
        self._pace.disturb()
        self.steady.end()

    def stand(self, way: Whereabouts) -> None:
        """A backward pass begins here, on this thread."""
        self._here.way = way

    def _is_steady(self) -> bool:
        """Whether what was begun is at its end: it is to hear of every boundary until then."""
        busy = self._sampling.on or self.bus.hears_samples or self._taps.watching_modules
        return not (busy or self.bus.any("waits"))

    def _restart(self) -> None:
        self.flush_steps()
        # Its steps were parts of steps.
        self._sampling.abandon()
        self.bus.told("restarted")
        self.schedule.restart()
        self.costs.restart()

    # Windows ------------------------------------------------------------------------------------------------------

    def _start_window(self, kind: StepKind, tick: int, elapsed: float, length: int) -> None:
        with self.costs.of("windows"):
            self.disturb()
            self._sampling.start(kind, tick, elapsed, length)
            self.bus.sampled(True)

    def sample_from_start(self) -> None:
        """Open a window before the first step, where all is to be looked at."""
        if self.schedule.every_step:
            self._start_window("forward", 0, 0.0, self.schedule.window_length)

    def _evaluation_begins(self) -> None:
        """Evaluation may be a long way from any boundary: look at its first few passes at once, at those of the first
        evaluation whatever that costs."""
        looks = self._evaluation_looks
        with self._session.guarded("evaluation"):
            if self.bus.any("wants_modules"):
                self._taps.watch_modules()
        # Before the first step a model may be built, loaded and tried out.
        if self._sampling.on or looks >= _EVALUATION_LOOKS or self.tick == 0:
            return
        elapsed = self.elapsed()
        if looks == 0 or self.schedule.affordable(elapsed):
            self._evaluation_looks += 1
            with self._session.guarded("evaluation"):
                self._start_window("evaluation", self.tick, elapsed, _EVALUATION_STEPS)

    def sample_evaluation(self, module: torch.nn.Module | None = None) -> None:
        """See `Host`."""
        before = self._sampling.on
        self._evaluation_begins()
        if self._sampling.on and not before and module is not None:
            self._taps.is_within(module)

    def _work_begins(self) -> None:
        """The step before is over in every sense: its gradients and losses, too."""
        if self._sampling.on:
            with self._session.guarded("step boundaries"), self.costs.of("graphs"):
                self._sampling.work_begins(graphs.within(self.graph_seconds()))

    def _end_if_overdue(self) -> None:
        """End a window in the middle of a step that turned out to be too long for it."""
        # Asked within a step: thousands of tiny operators must not be noted to its end.
        if self._sampling.overdue:
            with self.stepping.turn() as mine, self._session.guarded("step boundaries"), self.costs.of("windows"):
                if mine:
                    self._end_window(self.tick + 1, partial=True)

    def _end_window(self, tick: int, partial: bool = False) -> None:
        self.flush_steps()
        closed = self._sampling.end(tick, partial)
        if closed is not None:
            self._stop_watching_modules()
            self._keep(closed, tick)
            self.schedule.window_closed(tick)
            self._write_totals(tick)

    def _keep(self, closed: Closed, tick: int, final: bool = False) -> None:
        for record in closed.records:
            self.write(record)
        self.bus.told("window_closed", tick, closed.peak, closed.cohort, final)

    def _stop_watching_modules(self) -> None:
        """Module hooks cost time: they stay only where forward passes make the steps, or a probe wants them."""
        # On the other levels forward passes or batches make the steps, and need the hooks.
        if self.clock.level in ("training", "backward", "manual") and not self.bus.any("wants_modules"):
            self._taps.unwatch_modules()

    def _write_totals(self, tick: int) -> None:
        """Write the running totals: what they say counts if the program is killed next."""
        for record in self.bus.totals(tick):
            self.write(record)

    # The end ------------------------------------------------------------------------------------------------------

    def finish(self, how: str, error: BaseException | None) -> None:
        """The last look, while the frames of `error`'s traceback are alive."""
        self.steady.end()
        self.stepping.end()
        self.costs.settle()
        self._before_end = sum(self.costs.seconds.values())
        with self.costs.of("end"):
            self._finish(how, error)
        # Its classes and code objects must die when the interpreter takes the program down.
        forget_the_program()

    def _finish(self, how: str, error: BaseException | None) -> None:
        self.flush_steps()
        closed = self._sampling.end_for_good(self.tick)
        # While taps are still in: some probes close what they have begun. Their looks are timed.
        self.bus.tell("finish", how, error)
        self.bus.remove()
        # Before the censuses, which call torch themselves.
        self._taps.remove()
        if closed is not None:
            self._keep(closed, self.tick, final=True)
        # The program's last names: the census needs the frames of the error.
        self.bus.told("last_look", how, error)
        self._write_totals(self.tick)
        simulated = simulated_gaps() if self.options.simulated_gpu is not None else ()
        sampled = bool(self._sampling.windows) or not self.tick
        for gap in (*simulated, *unchecked(self.ledger, sampled), *self.bus.unchecked(), *self.stepping.unchecked()):
            self.write(gap)
        self._proofs.end()

    def overhead(self, elapsed: float) -> Overhead:
        """What looking has cost of `elapsed` seconds."""
        self.costs.settle()
        stepping = self._passed - self.first_boundary if self.first_boundary is not None else 0.0
        found = Overhead(elapsed=elapsed, seconds=self.costs.seconds, sampled_steps=self._sampling.steps)
        found.stepping, found.while_stepping = stepping, self._before_end
        return found
