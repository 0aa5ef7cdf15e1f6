"""Looks at the line that a thread is at, from a thread of its own, and gives the time since its last look to it.

Pure Python; nothing of it runs in the program's threads. The thread is the interpreter's, and not one of `threading`'s:
no hook of the program's hears of it. It takes no signal, and it ends before a fork, for a process that forks with a
second thread is warned from Python 3.12 on; the parent goes on with a new one.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

from torchvet.probes.base.course import Course
from torchvet.probes.time.stacks import COLLECTING, Doing, below_own, glance, known_tags, still, understood

_DENSE, _USUAL, _SPARSE = 0.008, 0.05, 0.1
"""Seconds from one look to the next, on the average: of the first looks, of most, and of those of a long run."""
_DENSE_LOOKS, _USUAL_LOOKS = 160, 2000
# By the clock thread's own CPU time; what it makes others wait for is no part of it.
_SHARE, _ALLOWANCE = 0.0025, 0.015
"""Of the elapsed time, and seconds beside it: what looking may take of its thread's own."""
_LONGEST = 1.0
_SWITCH = 0.000005
"""Seconds after which the interpreter is to let another thread run, as long as the program has one that is busy. No
Python that takes less is ever seen: a look then comes where the interpreter's lock is given up anyway, which is in the
next operator of torch's. With 0.25 ms the time of a call of 0.1 ms is found on the line behind it."""
# Python's default is 5 ms: a shorter one was chosen by the program.
_USUAL_SWITCH = 0.0049
_MOST_KEYS = 4000
_MOST_CELLS = 1500
_CALM = 40
"""Looks in a row at which no other thread has moved before threads are to switch soon again."""
_PR_SET_TIMERSLACK = 29
"""Of the calling thread alone, in nanoseconds: see prctl(2)."""
_PATIENCE = 0.25
"""Seconds that a fork waits for the thread to end."""


class Now(NamedTuple):
    """What the session says of a moment: which thread trains, how many steps have ended and how many of them were
    sampled; whether time counts now, whether torchvet itself works on that thread, and whether garbage is collected;
    how many seconds so far the calls took that give it batches, and backward passes."""

    thread: int
    steps: int
    sampled: int
    counts: bool = True
    own: bool = False
    collecting: bool = False
    loading: float = 0.0
    backward: float = 0.0


class Cell:
    """The time of one line, as it was reached."""

    __slots__ = ("course", "doing", "last", "looks", "seconds", "steps")

    def __init__(self, doing: Doing) -> None:
        self.doing = doing
        self.seconds = 0.0
        self.looks = 0
        self.steps = 0
        self.last = -1
        """The step in which it was seen last."""
        self.course = Course()


class Tally:
    """Sums up looks. Time of a step that has not ended yet waits: what comes after the last step belongs to none."""

    def __init__(self) -> None:
        self.cells: dict[tuple[object, ...], Cell] = {}
        self.seconds = 0.0
        self.rest = 0.0
        self.steps = 0
        self.looks = 0
        self.loading = self.backward = 0.0
        """Seconds of these calls, in the same time as what was seen."""
        self.course = Course()
        self._by_key: dict[int, Cell] = {}
        self._waiting: list[tuple[Cell | None, float, float, float]] = []
        self._calls = 0.0, 0.0
        """Seconds of the same calls until the last look."""
        self._at: int | None = None
        self._last = 0
        """Steps that had ended at the last look, whether or not it counted."""
        self._whole = False
        """Whether the step under way has been watched from its beginning."""
        self._sampled = 0

    def begin_anew(self) -> None:
        """Steps are counted anew: what was seen of the others does not compare."""
        calls = self._calls
        # All fields at once, so that none is forgotten.
        self.__init__()  # type: ignore[misc]
        # They go on: what was called before is no time of the next step.
        self._calls = calls

    def look(self, frame: FrameType | None, seconds: float, now: Now) -> None:
        """A thread was seen after so many seconds."""
        # A stronger step signal appeared: often while a window is open, as the first steps are sampled.
        if now.steps < self._last:
            self.begin_anew()
        self._last = now.steps
        if now.counts:
            self._pass_steps(now)
            # torchvet's own work is in the step's time, and is no line's. Calls that ended before it, as backward
            # passes do before a step's end, go to the next look.
            if now.own and self._whole:
                return
        loading, backward = now.loading - self._calls[0], now.backward - self._calls[1]
        self._calls = now.loading, now.backward
        if not now.counts:
            self._waiting.clear()
            self._at = None
            return
        if now.own or not self._whole:
            return
        if now.collecting:
            # The look comes in torchvet's `gc.callbacks`, on top of the line that set the collection off.
            frame = below_own(frame)
        key = glance(frame, known_tags)
        if key is not None:
            # Not summed yet: a step that never ends (the program stops) must not count.
            cell = self._cell(key ^ now.collecting, frame, now.collecting)
            self._waiting.append((cell, seconds, loading, backward))

    def _pass_steps(self, now: Now) -> None:
        # A sampled step takes several times as long, and its time is not the program's.
        if self._at is None or now.sampled != self._sampled:
            # From the middle of a step: the next is the first that is watched whole.
            self._waiting.clear()
            self._at, self._sampled, self._whole = now.steps, now.sampled, False
        elif now.steps > self._at:
            if self._whole:
                self.steps += now.steps - self._at
                self._settle()
            self._at, self._whole = now.steps, True

    def _settle(self) -> None:
        for cell, seconds, loading, backward in self._waiting:
            self.seconds += seconds
            self.looks += 1
            self.course.add(self.steps, seconds)
            self.loading += loading
            self.backward += backward
            if cell is None:
                self.rest += seconds
                continue
            cell.seconds += seconds
            cell.looks += 1
            cell.course.add(self.steps, seconds)
            if cell.last != self.steps:
                cell.steps += 1
                cell.last = self.steps
        self._waiting.clear()

    def _cell(self, key: int, frame: FrameType | None, collecting: bool) -> Cell | None:
        found = self._by_key.get(key)
        if found is not None:
            return found
        if len(self._by_key) >= _MOST_KEYS:
            self._by_key.clear()
        doing = understood(frame)
        if collecting:
            doing = doing._replace(kinds=(COLLECTING,))
        if not doing.lines:
            return None
        cell = self.cells.get(doing.key)
        if cell is None:
            if len(self.cells) >= _MOST_CELLS:
                return None
            cell = self.cells[doing.key] = Cell(doing)
        self._by_key[key] = cell
        return cell


class LineClock:
    """The thread. `ask` is called from it, and tells what the session says of the moment."""

    def __init__(self, ask: Callable[[], Now]) -> None:
        self.tally = Tally()
        self.own = 0.0
        """Seconds of its thread's own that looking took."""
        self.failure = ""
        """Why it has ended by itself; empty where it has not."""
        self._ask = ask
        self._wanted = False
        self._wake = _thread.allocate_lock()
        self._ended = _thread.allocate_lock()
        self._native = 0
        self._pid = os.getpid()
        self._switch: tuple[float, float] | None = None
        """The interpreter's interval before this clock set its own, and that of its own, as long as it is in force."""
        self._switching = _thread.allocate_lock()
        """Held while the interval is set: a look that ends must not set it again after it has been put back."""
        self._thread = 0
        self._others: dict[int, tuple[int, int]] = {}
        """Where the program's other threads were at the last look."""
        self._calm = 0
        self._chance = 1
        self._depth = 1
        """How deep the stack was at the last look."""
        self._since = 0.0

    @property
    def running(self) -> bool:
        """Whether the thread is there, or about to be."""
        return self._wanted

    def start(self) -> None:
        """Begin to look; nothing happens where that is impossible."""
        if self._wanted or self.failure:
            return
        # Without the lock a frame may change or die while another thread reads it.
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            self.failure = "frames cannot be read from another thread in a Python without the interpreter's lock"
            return
        self._wake = _thread.allocate_lock()
        # Held: the clock's thread waits for it with a timeout, and releasing it ends the wait.
        self._wake.acquire()
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        # Before the thread starts, which asks `_wanted` at once.
        self._wanted, self._native, self._pid = True, 0, os.getpid()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError as error:  # no thread can be had, or the interpreter is about to end
            self._wanted, self.failure = False, str(error)
            return
        self._since = self._since or time.perf_counter()
        _register(self)
        self._hurry()

    def stop(self) -> None:
        """End the thread, and wait until it is gone."""
        if not self._wanted:
            return
        self._wanted = False
        self._restore()
        # A forked child has no such thread to wait for.
        if self._pid != os.getpid():
            return
        with suppress(RuntimeError):
            self._wake.release()
        if self._ended.acquire(timeout=_PATIENCE):
            _gone(self._native)

    def left_in_parent(self) -> None:
        """This is a forked child, in which the thread is not."""
        self._wanted = False
        self._switching = _thread.allocate_lock()  # the thread that is not here may have held it
        self._restore()

    def _hurry(self) -> None:
        """Have threads switch soon. A program that has chosen an interval of its own keeps it."""
        with self._switching:
            usual = sys.getswitchinterval()
            # A program that has set a shorter interval has its reasons.
            if self._switch is None and usual > _SWITCH and usual >= _USUAL_SWITCH:
                sys.setswitchinterval(_SWITCH)
                self._switch = (usual, sys.getswitchinterval())

    def _restore(self) -> None:
        with self._switching:
            # Compared with what Python made of the value: it rounds to microseconds.
            if self._switch is not None and sys.getswitchinterval() == self._switch[1]:
                sys.setswitchinterval(self._switch[0])
            self._switch = None

    def _run(self) -> None:
        ended, wake = self._ended, self._wake
        try:
            self._native, self._thread = _thread.get_native_id(), _thread.get_ident()
            _be_punctual()
            if hasattr(signal, "pthread_sigmask"):
                # A signal that the program waits for is to reach one of its own threads.
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._look_until_told(wake)
        # Nothing may be printed by a thread that the program does not know.
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            ended.release()

    def _look_until_told(self, wake: _thread.LockType) -> None:
        last = time.perf_counter()
        while self._wanted:
            wake.acquire(True, self._interval())
            # At once: the thread that trains is about to ask for the lock, and would take it in the midst of a look.
            hurried = self._take_time()
            if not self._wanted:
                return
            # From here on the budget counts; waiting is free.
            start = time.thread_time()
            # What is made and dropped here is not to set off a collection: it would run the program's destructors on
            # this thread.
            collects = gc.isenabled()
            if collects:
                gc.disable()
            try:
                now = time.perf_counter()
                self._look(now - last)
                last = now
            finally:
                if collects:
                    gc.enable()
                self._give_back(hurried)
            self.own += time.thread_time() - start

    def _take_time(self) -> float | None:
        """Have no other thread take over: the frames that are looked at would move on meanwhile. The interval that
        holds again afterwards; None where it stays."""
        with self._switching:
            switch = self._switch
            if switch is None or sys.getswitchinterval() != switch[1]:
                return None
            sys.setswitchinterval(switch[0])
            return _SWITCH

    def _give_back(self, hurried: float | None) -> None:
        with self._switching:
            # Whatever the program has set meanwhile is its own.
            if hurried is not None and self._switch is not None and sys.getswitchinterval() == self._switch[0]:
                sys.setswitchinterval(hurried)

    def _look(self, seconds: float) -> None:
        # Before the frames are taken: what it says must be of their moment.
        now = self._ask()
        # Holding all frames for a moment: not while nothing would be counted.
        stacks = sys._current_frames() if now.counts and not now.own else {}
        frame = None
        # Before anything else is called, for each call may lose the lock.
        if now.thread in stacks:
            frame, self._depth = still(stacks[now.thread], self._depth)
            del stacks[now.thread]
            self._mind(stacks)
        self.tally.look(frame, seconds, now if frame is not None or now.own else now._replace(counts=False))

    def _mind(self, others: dict[int, FrameType]) -> None:
        """Several busy threads of the program's would be held up by switching so soon."""
        others.pop(self._thread, None)
        at = {thread: (id(frame.f_code), frame.f_lasti) for thread, frame in others.items()} if others else {}
        # A thread that waits stands at one instruction.
        busy = any(self._others.get(thread, place) != place for thread, place in at.items())
        self._others = at
        if busy:
            self._calm = _CALM
            self._restore()
        elif self._calm:
            self._calm -= 1
            if not self._calm:
                self._hurry()

    def _interval(self) -> float:
        """Seconds to the next look. They differ by chance, so that no look falls in step with the program."""
        looks = self.tally.looks
        usual = _DENSE if looks < _DENSE_LOOKS else _USUAL if looks < _USUAL_LOOKS else _SPARSE
        # What has been overspent is waited for.
        due = (self.own - _ALLOWANCE) / _SHARE - (time.perf_counter() - self._since)
        # A generator of its own (the constants of C's `rand`): the program's must not be drawn from.
        self._chance = (self._chance * 1103515245 + 12345) & 0x7FFFFFFF
        return min(_LONGEST, max(usual, due)) * (0.5 + self._chance / 0x7FFFFFFF)


def _be_punctual() -> None:
    """Linux lets a thread oversleep by 50 us, ten times the switch interval. Before it wakes, the training thread has
    given the lock up by itself and taken it again: looks would come in operators of torch's alone."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _gone(native: int) -> None:
    """Wait for the system to see the end of a thread that has nothing left to do."""
    path = f"/proc/self/task/{native}"
    until = time.perf_counter() + 0.01
    while native and os.path.exists(path) and time.perf_counter() < until:
        time.sleep(0.0001)


_clocks: list[LineClock] = []
_paused: list[LineClock] = []
_registered = False


def _register(clock: LineClock) -> None:
    global _registered
    if not _registered and hasattr(os, "register_at_fork"):
        _registered = True
        # Once in a process; it cannot be taken back.
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
    # The last clock alone: there is one session at a time.
    _clocks[:] = [clock]


def _before_fork() -> None:
    for clock in _clocks:
        if clock.running:
            clock.stop()
            _paused.append(clock)


def _after_fork() -> None:
    while _paused:
        _paused.pop().start()


def _in_child() -> None:
    _paused.clear()
    for clock in _clocks:
        clock.left_in_parent()
    _clocks.clear()
