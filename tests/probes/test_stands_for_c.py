"""What stands in place of a function that is written in C passes for it."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
import types
from typing import Any

import pytest

from torchvet.probes.internals._importlib_bootstrap_named import in_c


def wrapped(original: Any) -> Any:
    def ours(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return in_c(ours, original)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Any:
    one = wrapped(open)
    monkeypatch.setattr("io.open", one)
    return one


def test_it_is_of_the_functions_class(ours: Any) -> None:
    assert isinstance(ours, types.BuiltinFunctionType) and inspect.isbuiltin(ours)
    assert type(ours).__name__ == "builtin_function_or_method"


def test_it_has_the_functions_attributes_and_no_others(ours: Any) -> None:
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__self__", "__text_signature__"):
        assert getattr(ours, name) == getattr(open, name)
    assert not any(hasattr(ours, name) for name in ("__wrapped__", "__code__", "__get__", "__dict__"))
    assert inspect.signature(ours) == inspect.signature(open) and repr(ours) == repr(open)
    with pytest.raises(AttributeError):
        ours.mine = 1


def test_it_is_pickled_and_copied_by_name(ours: Any) -> None:
    assert pickle.loads(pickle.dumps(ours)) is ours and copy.deepcopy(ours) is ours


def test_one_frame_is_between(tmp_path: Any, ours: Any) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        ours(tmp_path / "missing")
    assert [one.name for one in traceback.extract_tb(raised.value.__traceback__)][1:] == ["ours"]
