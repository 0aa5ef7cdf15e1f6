"""Waits for the observed program, and passes on the signals that were meant for it.

A Ctrl-C in a terminal reaches the whole process group: the program has had it, and the supervisor only has to survive.
A signal that someone sent to the supervisor alone (`kill`, a scheduler, a container's stop) is for the program. Linux
says which of the two it was; elsewhere it is judged by whether the terminal's foreground group is ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType

KEYBOARD = {signal.SIGINT} | {s for n in ("SIGQUIT", "SIGHUP") if (s := getattr(signal, n, None))}
PASSED_ON = KEYBOARD | {s for n in ("SIGTERM", "SIGUSR1", "SIGUSR2") if (s := getattr(signal, n, None))}
TICK = 0.5
"""Seconds between two looks at the recording while the program runs."""
_ONCE = 0.1
"""Seconds within which the same signal again is not passed on again (`timeout` sends to a process and its group)."""


def run_relayed(
    start: Callable[[Callable[[], None]], subprocess.Popen[bytes]],
    tick: Callable[[], None],
    passed: list[int] | None = None,
) -> int:
    """Start the child, wait, and give its status: what it exited with, or -N where signal N killed it.

    `start` is given a function to call in the new process before the program takes it over. `tick` is called twice
    a second. The signals that were passed on are added to `passed`.
    """
    relay = _BlockedRelay() if hasattr(signal, "sigtimedwait") else _HandlerRelay()
    try:
        child = start(relay.before_program())
        relay.child = child
        return relay.wait(child, tick)
    finally:
        relay.restore()
        if passed is not None:
            passed += relay.passed


class _Relay:
    """What both ways have in common: which signals, and passing one on."""

    def __init__(self) -> None:
        # One that is ignored (as `nohup` does) is ignored by the program too: exec keeps that.
        self.signals = [s for s in sorted(PASSED_ON) if signal.getsignal(s) is not signal.SIG_IGN]
        self.child: subprocess.Popen[bytes] | None = None
        self.passed: dict[int, float] = {}

    def pass_on(self, number: int) -> None:
        now = time.monotonic()
        if self.child is not None and now - self.passed.get(number, -_ONCE) >= _ONCE:
            self.passed[number] = now
            self.child.send_signal(number)

    def before_program(self) -> Callable[[], None]:
        return _follow_parent()

    def wait(self, child: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
        while True:
            try:
                return child.wait(TICK)
            except subprocess.TimeoutExpired:
                tick()

    def restore(self) -> None:
        pass


class _BlockedRelay(_Relay):
    """Signals are blocked and taken one by one, with the system's word on who sent them."""

    def __init__(self) -> None:
        super().__init__()
        # SIGCHLD ends the wait as soon as the program has ended.
        self.taken = {*self.signals, signal.SIGCHLD}
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, self.taken)

    def before_program(self) -> Callable[[], None]:
        follow = super().before_program()

        def prepare() -> None:
            # Before they are unblocked: a signal that waits must meet none of the supervisor's handlers between here
            # and exec.
            for number in self.signals:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
            follow()

        return prepare

    def wait(self, child: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
        while child.poll() is None:
            # Taken so, a signal comes with its sender; a handler is not told.
            got = signal.sigtimedwait(self.taken, TICK)
            if got is None:
                tick()
            # A positive si_code is the kernel's: the terminal's Ctrl-C, which the program got as well.
            elif got.si_signo in self.signals and not (got.si_code > 0 and got.si_signo in KEYBOARD):
                self.pass_on(got.si_signo)
        assert child.returncode is not None
        return child.returncode

    def restore(self) -> None:
        # What still waits was meant for the program, which is over: unblocked, it would end the supervisor before the
        # diagnosis.
        while signal.sigtimedwait(self.taken, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


class _HandlerRelay(_Relay):
    """For systems that do not say who sent a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.before = {s: signal.signal(s, self._handle) for s in self.signals}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not (number in KEYBOARD and _in_foreground()):
            self.pass_on(number)

    def restore(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    for descriptor in (0, 1, 2):
        try:
            return os.tcgetpgrp(descriptor) == os.getpgrp()
        except OSError:
            continue
    return False


def _follow_parent() -> Callable[[], None]:
    """A function for the new process that makes it die with the supervisor, where the system can (Linux)."""
    # Loaded before the fork: the child may call nothing that needs a lock which another thread held.
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def follow() -> None:
        prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        # The supervisor may have died before the line above: then its death sends no signal any more.
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)

    return follow
