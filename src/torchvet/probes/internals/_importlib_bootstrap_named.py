"""A wrapper that is pickled as the function in whose place it stands.

The name matters as in `_importlib_bootstrap_taps`: warnings still point at the program's line.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any


class Named:
    """A function of one module that stands in another in place of the first one's own: `torch.load` is
    `torch.serialization.load`, and by that name it is pickled. Pickle refuses a function that its name does not
    lead to, and programs send such functions to other processes."""

    def __init__(self, ours: Callable[..., Any], original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original)
        self._ours = ours

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function."""
        return self._ours(*args, **kwargs)

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        """A function in a class is a method of its objects."""
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        # What else a function has: its code, its defaults.
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (f"{self.__module__}:{self.__qualname__}",)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


def named(owner: Any, original: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    """`ours`, to stand in place of `original` in a module or class: as a `Named` if it is pickled by another name."""
    if not isinstance(owner, ModuleType) or not isinstance(original, (FunctionType, Named)):
        return ours
    home = sys.modules.get(original.__module__)
    return Named(ours, original) if home is not None and home is not owner else ours


class InC:
    """Stands in place of a function that is written in C, and passes for one: it is no method in a class that has it,
    and has no attributes beside the function's. See `in_c`."""

    __slots__ = ("_original",)

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __reduce__(self) -> str:
        return self._original.__name__

    def __repr__(self) -> str:
        return repr(self._original)


def in_c(ours: Callable[..., Any], original: Callable[..., Any]) -> Any:
    """`ours`, to stand in place of `original`, which is written in C."""
    kind = type(original)
    # Programs ask `isinstance(open, types.BuiltinFunctionType)`, and for a class its documentation and module are its
    # own. A static method is called without a frame between.
    names = {
        "__slots__": (),
        "__call__": staticmethod(ours),
        "__class__": property(lambda self: kind),
        "__doc__": original.__doc__,
        "__module__": original.__module__,
    }
    return type(kind.__name__, (InC,), names)(original)
