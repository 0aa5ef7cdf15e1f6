"""Lets exceptions out of backward passes.

While an exception of Python's leaves a node of the engine, C++ puts streams back and asks the backend's device guard
for its type. That is a call into Python with an exception pending, which Python answers with SystemError, in a
destructor, and the process is aborted (torch 2.13). So the guard takes the exception aside, and where the engine then
returns without one, it is raised.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch.autograd.variable import Variable

_aside: dict[int, BaseException] = {}
"""Exceptions on their way out, by the thread that raised them."""
_any_call = functools.partial(bool)
"""Python looks for a pending exception after calls of such objects, whatever it has optimised."""


class Guard(torch._C._acc.DeviceGuard):
    """The backend's device guard: its type, with an exception pending or not."""

    def type_(self) -> Any:
        """Which device type it guards."""
        try:
            # Makes Python notice the pending exception here, where it can be caught.
            _any_call()
        except SystemError as error:
            # A SystemError of Python's own has no cause.
            if error.__cause__ is not None:
                _aside[threading.get_ident()] = error.__cause__
        return _PRIVATE


_PRIVATE = torch._C._autograd.DeviceType.PrivateUse1


class _Engine:
    """torch's engine, whose lost exceptions are raised."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        try:
            return self._engine.run_backward(*args, **kwargs)
        # The engine then returns without an error of its own.
        except SystemError:
            # Raised on a thread of the engine's, perhaps.
            lost = _aside.pop(threading.get_ident(), None) or (_aside.popitem()[1] if _aside else None)
            if lost is None:
                raise
        try:
            raise lost
        finally:
            del lost  # the exception's traceback has this frame: together they would keep the step's memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def begin_without_threads() -> None:
    """Let the engine start before it knows of the devices. Call it before the device guard is there.

    The engine starts a thread for each device that it knows of when it runs first, and a process with such threads may
    run no backward pass in its forks. Here every pass runs in the thread that asks for it.
    """
    # Any backward pass starts the engine.
    torch.ones((), requires_grad=True).backward()  # type: ignore[no-untyped-call]


def install() -> None:
    """Put it between torch and its engine."""
    Variable._execution_engine = _Engine(Variable._execution_engine)  # type: ignore[assignment]
