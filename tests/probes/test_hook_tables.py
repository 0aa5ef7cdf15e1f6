"""Hooks are counted and their functions named; hooks of any kind do no harm."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hosts import ByHand

from torchvet.probes.objects.hook_tables import HookProbe
from torchvet.recording.records.base import Record
from torchvet.recording.records.training import HookCount, HookFunction


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise in here once the time is up: an endless loop is a failure, not a wait."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def look(model: torch.nn.Module, times: int = 1) -> list[Record]:
    host: Any = ByHand()
    host.known.add_root(model)
    probe = HookProbe(host)
    for tick in range(times):
        probe.names_counted(tick)
        host.written += probe.totals(tick)
    return list(host.written)


def on_forward(module: Any, args: Any, output: Any) -> None:
    """A hook."""


def counted(model: torch.nn.Module) -> HookCount:
    (record,) = [r for r in look(model) if isinstance(r, HookCount)]
    return record


def test_no_hooks_no_record() -> None:
    assert look(torch.nn.Linear(1, 1)) == []


def test_hooks_that_pile_up_are_counted_by_function() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    for _ in range(5):
        model[0].register_forward_hook(on_forward)
    model.register_forward_pre_hook(lambda m, i: None)
    record = counted(model)
    assert (record.hooks, record.most, record.function) == (6, 5, "on_forward")
    assert record.module == "Sequential.0"
    assert record.place is not None and record.place.path == __file__


def test_a_function_is_written_once_with_its_lines() -> None:
    model = torch.nn.Linear(1, 1)
    model.register_forward_hook(on_forward)
    (function,) = [r for r in look(model, times=3) if isinstance(r, HookFunction)]
    first = on_forward.__code__.co_firstlineno
    assert (function.name, function.path, function.table) == ("on_forward", __file__, "_forward_hooks")
    assert function.first_line == first <= function.last_line


class Method:
    """Hooks that are not functions."""

    def __call__(self, *args: Any) -> None: ...

    def method(self, *args: Any) -> None: ...


@pytest.mark.parametrize(("hook", "name"), [
    (Method().method, "method"),
    (Method(), "__call__"),
    (functools.partial(on_forward), "on_forward"),
    (functools.partial(functools.partial(Method().method)), "method"),
    (print, None),
], ids=["method", "object", "partial", "partial of partial", "builtin"])  # fmt: skip
def test_every_kind_of_callable_is_named_or_counted(hook: Callable[..., Any], name: str | None) -> None:
    model = torch.nn.Linear(1, 1)
    model.register_forward_hook(hook)
    record = counted(model)
    assert record.hooks == 1 and record.function == name


def test_hooks_on_parameters_are_counted() -> None:
    model = torch.nn.Linear(1, 1)
    model.weight.register_hook(lambda g: None)
    assert counted(model).hooks == 1


class Evasive:
    """A hook that answers to every name with itself; a mock does so with ever more mocks."""

    def __call__(self, *args: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return self


class Angry:
    """A hook that answers to no name."""

    def __call__(self, *args: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@pytest.mark.parametrize("hook", [Evasive, Angry])
def test_hooks_with_attributes_of_their_own_making_do_no_harm(hook: Callable[[], Any]) -> None:
    model = torch.nn.Linear(1, 1)
    model._forward_hooks[0] = hook()
    with time_limit(60.0):
        assert counted(model).hooks == 1
