"""Notices that a rank stands still, from a thread of its own: ranks that wait for each other never say so themselves.
Keeps in a file what the rank did last, for the case that it is killed.

A rank that waits in a collective has given the interpreter's lock up. Nothing of torch's is called, and nothing is
asked of other ranks: what each wrote down is held side by side when the program has ended.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from torch.optim.optimizer import Optimizer

from torchvet.probes.base.kit import Host, StepKind, Unchecked, Watcher, frames, outward
from torchvet.probes.ranks.called import CallCounts
from torchvet.probes.ranks.membership import has_joined, is_launched
from torchvet.recording.faults import WRAPPERS, called, communicates
from torchvet.recording.last_seen import LastSeenFile
from torchvet.recording.records.ranks import Standstill

_TRAINS = ("training", "backward", "manual")
_LOOK = 1.0
"""Seconds between two looks."""
_ALIVE = 2.0
"""Seconds after which the interpreter is told that Python still runs."""
_FIRST = 5.0
"""Seconds at one place after which it is written down; again each time that they have doubled."""


class StandstillProbe(Watcher):
    """Where a rank stands still, and where it was last."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._running = False
        self._wake = _thread.allocate_lock()
        # The main thread only: ranks train on it.
        self._main = threading.main_thread().ident
        self._at: tuple[int, int, int] | None = None
        self._since = 0.0
        self._alive = 0.0
        self._next = _FIRST
        self._failure = ""
        self._last: LastSeenFile | None = None
        self._calls = CallCounts()
        self.ignored = frozenset({"backward_starts", "backward_ended", "optimizer_starts", "boundary"})

    def install(self) -> None:
        """A launcher says in variables that there are several ranks."""
        if is_launched():
            self._start()

    def settle(self, tick: int, kind: StepKind) -> None:
        """Programs may start their ranks themselves."""
        if not self._running and has_joined():
            self._start()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """See `LastSeenFile`; so with the events below."""
        self._moment(1)

    def backward_ended(self, is_grad: bool) -> None:
        """It returned."""
        self._moment(2)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """A step of it begins."""
        self._moment(3)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if self._last is not None:
            self._last.moment(tick, 0)
            # An evaluation's belong to the step after it.
            if kind in _TRAINS and threading.get_ident() == self._main:
                self._calls.step(self.host.clock.main_steps)

    def _moment(self, phase: int) -> None:
        if self._last is not None:
            self._last.moment(self.host.tick, phase)

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`."""
        self._stop()
        self._write_calls()

    def unchecked(self) -> Iterator[Unchecked]:
        """See `Watcher`."""
        if self._failure:
            yield Unchecked(check="where a rank stands still", reason=self._failure)

    def remove(self) -> None:
        """See `Watcher`."""
        super().remove()
        self._stop()

    def _start(self) -> None:
        self._running = True
        self._last = LastSeenFile(self.host.record)
        self.heed()
        # Held from here on: the thread waits on it, and releasing it ends the wait at once.
        self._wake.acquire(blocking=False)
        # The interpreter's own thread, and not one of `threading`'s, which programs count and join.
        with suppress(RuntimeError):
            _thread.start_new_thread(self._run, (self._wake,))

    def _stop(self) -> None:
        if self._last is not None:
            self._last.end()
        if self._running:
            self._running = False
            with suppress(RuntimeError):
                self._wake.release()

    def _run(self, wake: _thread.LockType) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # A signal that the program waits for is to reach one of its own threads.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            # The lock is the clock: it returns False after `_LOOK` seconds.
            while not wake.acquire(True, _LOOK) and self._running and self.host.watching:
                self._look(time.monotonic())
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"

    def _look(self, now: float) -> None:
        # Not before the first step: the interpreter writes without its lock, and an import of minutes may end, and go
        # on running, in the middle of that.
        if self.host.tick and now - self._alive >= _ALIVE:
            self._alive = now
            self.host.alive()
        # What torchvet itself does on that thread is no standstill of the program's.
        frame = sys._current_frames().get(self._main or 0) if self.host.active else None
        # Tick and instruction: a loop that goes round at one line has moved on.
        at = None if frame is None else (self.host.tick, id(frame), frame.f_lasti)
        if at is None or at != self._at:
            self._at, self._since, self._next = at, now, _FIRST
            if frame is not None and self._last is not None:
                self._last.line(standstill(frame, self.host.tick, 0.0))
        elif frame is not None and now - self._since >= self._next:
            # Written rarely, since a standstill may last for hours.
            self._next *= 2
            # A rank that waits for good is ended by a signal, and says no more.
            self._write_calls()
            self.host.write(standstill(frame, self.host.tick, now - self._since))

    def _write_calls(self) -> None:
        calls = self._calls.record()
        if calls is not None:
            self.host.write(calls)


def standstill(frame: FrameType, tick: int, seconds: float) -> Standstill:
    """What is known of a thread that has this innermost frame."""
    between: list[FrameType] = []
    for one in outward(frame):
        if frames.owner(one.f_code.co_filename) == frames.USER:
            place = frames.place_of(one)
            break
        between.append(one)
    else:
        place = None
    torch_s = [one for one in between if frames.owner(one.f_code.co_filename) == frames.TORCH]
    # The outermost of torch's: `all_reduce`, and not what it calls.
    collective = next((one for one in reversed(torch_s) if _communicates(one)), None)
    outer = collective or next((one for one in reversed(torch_s) if one.f_code.co_name not in WRAPPERS), None)
    call = called(outer.f_code.co_name) if outer is not None else ""
    return Standstill(
        tick=tick,
        seconds=round(seconds, 1),
        place=place,
        call=call,
        # Gradients are reduced within the backward pass, out of Python's sight.
        waits=collective is not None or call in ("backward", "_engine_run_backward"),
    )


def _communicates(frame: FrameType) -> bool:
    return communicates(frame.f_code.co_filename, frame.f_code.co_name)
