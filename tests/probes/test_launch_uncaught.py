"""What an uncaught exception means, and that it shows the program's frames only."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchvet
from torchvet.probes.session.exception_hook import BOTTOM, chain, clean, exit_status, is_out_of_memory

PROBES = Path(torchvet.__file__).parent / "probes"


def function(path: object, text: str, **names: Any) -> Callable[[], None]:
    """A function `f` whose code says that it is in a file."""
    exec(compile(text, str(path), "exec"), names)
    found: Callable[[], None] = names["f"]
    return found


def frames(error: BaseException) -> list[str]:
    return [Path(f.filename).name for f in traceback.extract_tb(error.__traceback__)]


def caught(call: Callable[[], None]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_our_frames_are_taken_out_wherever_they_are() -> None:
    last = function("user_last.py", "def f(): 1 / 0")
    wrapper = function(PROBES / "hooks.py", "def f(): g()", g=last)
    middle = function("user_first.py", "def f(): g()", g=function(PROBES / "hooks.py", "def f(): g()", g=wrapper))
    outer = function(BOTTOM, "def f(): g()", g=middle)
    error = caught(outer)
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None  # this file's own frame
    assert frames(error) == ["_importlib_bootstrap.py", "user_first.py", "hooks.py", "hooks.py", "user_last.py"]
    clean(error)
    assert frames(error) == ["user_first.py", "user_last.py"]


def test_also_out_of_the_exceptions_that_it_comes_from() -> None:
    first = function(PROBES / "hooks.py", "def f(): 1 / 0")
    error = caught(
        function("user.py", "def f():\n try: g()\n except ZeroDivisionError as e: raise KeyError from e", g=first)
    )
    clean(error)
    assert error.__cause__ is not None
    assert frames(error.__cause__) == ["user.py"]


def test_nothing_left_is_no_traceback() -> None:
    error = caught(function(PROBES / "hooks.py", "def f(): 1 / 0"))
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    clean(error)
    assert error.__traceback__ is None


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, two = ValueError(1), ValueError(2)
    one.__context__, two.__context__ = two, one
    assert list(chain(one)) == [one, two]
    one.__suppress_context__ = True
    assert list(chain(one)) == [one]


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (3, 3), (-1, 255), (300, 44), ("no", 1), (True, 1)])
def test_exit_status(code: object, status: int) -> None:
    assert exit_status(code) == status


def test_out_of_memory() -> None:
    device = type("OutOfMemoryError", (RuntimeError,), {})
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(device("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ValueError("DefaultCPUAllocator"))
