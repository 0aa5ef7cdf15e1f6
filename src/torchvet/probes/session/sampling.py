"""Opens windows at step boundaries, ends them where they are due or too long, and hands out what they show."""

from __future__ import annotations

import math
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base import graphs
from torchvet.probes.base.costs import OPERATOR_SECONDS, Costs
from torchvet.probes.base.hooks import Taps
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.memory import window
from torchvet.probes.memory.cohorts import Cohort
from torchvet.recording.records.base import StepKind

# `inference_mode` at a few boundaries is no reason to count names without windows.
_PATIENCE = 3
"""Boundaries at which no window could open before names are counted without."""
_WINDOW_SECONDS = 0.25
"""A window may cost this and its share of the run."""
_LITTLE = 0.03
"""The share of a step that noting its operators may take for its time to be the program's. Chosen, not measured."""


@dataclass
class Closed:
    """A finished window: its records, its peak in bytes, and the storages that outlive it."""

    records: list[Any]
    peak: int
    cohort: Cohort


class _Calls(threading.local):
    """The modules whose calls this thread is in, the outermost first."""

    def __init__(self) -> None:
        self.stack: list[torch.nn.Module] = []


class Sampling:
    """The window that is open, if one is, and the stack of modules that names its storages."""

    def __init__(self, known: KnownMemory, taps: Taps, schedule: Schedule, costs: Costs) -> None:
        self.ledger = Ledger()
        self.ledger.module = self._module_path
        self.ledger.running = self._module
        self.ledger.looked = costs.looked
        self._calls = _Calls()
        self.windows = 0
        self.steps = 0
        """Sampled steps so far."""
        self.disturbed = 0
        """Those whose time is not the program's: all but long ones with an evaluation."""
        self._known = known
        self._taps = taps
        self._schedule = schedule
        self._costs = costs
        self._open: window.OpenWindow | None = None
        self._thread = 0
        self._refused = 0
        self._noted = 0
        self._noting = self._worked = 0.0
        """What noting had taken, and the thread's work, when the last sampled step ended."""
        self._partial = self._light = False
        """Whether a window has ended amid the step that runs, and whether it was an evaluation's."""

    @property
    def stack(self) -> list[torch.nn.Module]:
        """The modules whose calls this thread is in."""
        return self._calls.stack

    @property
    def on(self) -> bool:
        """Whether storages are being noted."""
        return self._open is not None

    @property
    def lightly(self) -> bool:
        """Whether the open window is an evaluation's. The first evaluations are all sampled: a program that evaluates
        three times would have no time of any."""
        return self._open is not None and self._open.kind == "evaluation"

    @property
    def overdue(self) -> bool:
        """Whether the open window is to end in the middle of a step that turned out to be too long for it."""
        over = self.ledger.exhausted or self.ledger.stopped
        return self._open is not None and over and threading.get_ident() == self._thread

    def start(self, kind: StepKind, tick: int, elapsed: float, length: int) -> None:
        """Open a window of so many steps, where that is possible here; `elapsed` seconds of the run bound what it may
        note."""
        ledger = self.ledger
        # Within inference mode or a compiled region the mode cannot be switched on safely.
        if not ledger.enter():
            # No storages to note here (inference mode, say): names can be counted all the same.
            self._refused += 1
            ledger.inference = ledger.inference or torch.is_inference_mode_enabled()
            if self._refused > _PATIENCE:
                self._schedule.suspect(tick)
            return
        self._thread = threading.get_ident()
        self._taps.watch_modules()
        self.stack.clear()
        ledger.operators = self._noted = 0
        self._worked = time.thread_time()
        seconds = math.inf if self._schedule.every_step else _WINDOW_SECONDS + self._schedule.share * elapsed
        # A window's cost is bounded by what it may note, as it cannot be stopped by a clock.
        ledger.most_operators = int(min(seconds / OPERATOR_SECONDS, 1 << 60))
        self.windows += 1
        self._open = window.open_window(self.windows, tick, kind, length, self._known, ledger, time.perf_counter())

    def boundary(self, kind: StepKind, seconds: float) -> bool:
        """A step ended that took the program `seconds`: whether the open window is at its end."""
        one = self._open
        # A mode is on in one thread: steps of others are not sampled.
        if one is None or threading.get_ident() != self._thread:
            # The rest of the step in which a window ended was sampled in part: it is no plain one.
            if self._partial:
                self._account(seconds, self._light)
            elif one is None:
                self._costs.plain_step(seconds)
            self._partial = False
            return False
        self.steps += 1
        window.pass_boundary(one, self.ledger, kind)
        self.ledger.lines.around(sys._getframe(1))
        self._account(seconds, self.lightly)
        return len(one.ticks) >= one.length

    def _account(self, seconds: float, lightly: bool) -> None:
        operators, noting = self.ledger.operators - self._noted, self.ledger.noting - self._noting
        self._noted, self._noting = self.ledger.operators, self.ledger.noting
        worked, self._worked = time.thread_time() - self._worked, time.thread_time()
        # By the clock, as its thread's would take long to read at each operator; but on a busy machine no more than the
        # whole step's work.
        self._costs.sampled_step(seconds, operators, min(noting, worked) if worked > 0 else noting)
        self.disturbed += not (lightly and operators * OPERATOR_SECONDS <= _LITTLE * seconds)

    def backward_ended(self) -> None:
        """A backward pass ended: what it left in parameters are gradients, however soon they are freed."""
        if self._open is not None and threading.get_ident() == self._thread:
            window.note_gradients(self._open, self.ledger, self._known)

    def work_begins(self, late: graphs.Late) -> None:
        """The next step's work starts; following graphs ends when `late` says so."""
        if self._open is not None:
            window.next_forward_begins(self._open, self.ledger, late)

    def end(self, tick: int, partial: bool = False) -> Closed | None:
        """Close the open window; None where that cannot be done yet (the engine is running), or there is none."""
        one, ledger = self._open, self.ledger
        if one is None:
            return None
        # Taken out within the engine, the mode leaves its dispatch key behind: the program's next operator fails.
        # It stops noting, and is left at the next boundary.
        if not ledger.can_leave:
            ledger.stopped = True
            return None
        ledger.leave()
        self._partial, self._light = partial, self.lightly
        self._open = None
        return self._closed(one, tick, partial)

    def end_for_good(self, tick: int) -> Closed | None:
        """The program is over: close what is open, if a step of it was seen, or all is to be looked at."""
        self.ledger.leave()
        one, self._open = self._open, None
        if one is None or not (one.ticks or self._schedule.every_step):
            return None
        return self._closed(one, tick, partial=not one.ticks)

    def _closed(self, one: window.OpenWindow, tick: int, partial: bool = False) -> Closed:
        ledger = self.ledger
        records = window.close_window(one, tick, ledger, self._known, time.perf_counter())
        # What operators read in the first step and did not make may be older than the window: a carried graph, say.
        # With a single step there is no later one to tell by.
        since = one.first if len(one.ticks) > 1 else one.first - 1
        # What a later step met that no operator made: from a worker, NumPy.
        outside = [b for b in ledger.outside if b.tick > since]
        alive = [b for b in (*ledger.births, *outside) if b.died is None and b.op != "adopted"]
        # A step that was noted in part gives survivors but no rate.
        steps = 0 if partial else max(1, len(one.ticks))
        for birth in alive:
            birth.rated, birth.window = not partial, one.id
        ledger.forget_window()
        # `close_window` gives the window itself first.
        peak = records[0].peak
        records.extend(ledger.lines.records())
        return Closed(records, peak, Cohort(one.id, tick, steps, alive))

    def abandon(self) -> None:
        """Forget the open window: its steps were not steps."""
        # Else it goes on, and its cohort is forgotten by `restarted`.
        if self._open is not None and self.ledger.can_leave:
            self.ledger.leave()
            self._open = None
            self.ledger.forget_window()

    def _module(self) -> torch.nn.Module | None:
        stack = self._calls.stack
        return stack[-1] if stack else None

    def _module_path(self) -> str | None:
        module = self._module()
        return self._known.name_of(module) if module is not None else None
