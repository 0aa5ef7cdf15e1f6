"""Reads the variables of a running frame and leaves no trace in it.

Before Python 3.13 reading `f_locals` writes all variables into a dictionary that the frame keeps: what they are bound
to then lives on in it, and whoever has called `locals()` or `vars()` has that very dictionary. So a frame is asked
first whether it has one, which Python does not show: the dictionary's place in the frame is read from memory, where a
proof in the running interpreter has shown that it is there.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any, NamedTuple

_OPTIMIZED = 0x1
"""CO_OPTIMIZED: a function's code. Modules and class bodies have real dictionaries."""
_HANDED_OUT_BY = frozenset({"locals", "vars", "exec", "eval", "dir"})


class _Layout(NamedTuple):
    """Where a frame object keeps pointers, in bytes: to the frame behind it (from 3.11 on), and there to the rest."""

    behind: int | None
    globals: int
    builtins: int
    locals: int


# Read off CPython's headers (`frameobject.h`, `pycore_frame.h`) for 64 bits. `_proven` tries it out, since debug
# builds differ.
_LAYOUTS = {
    (3, 10): _Layout(None, 48, 40, 56),
    (3, 11): _Layout(24, 8, 16, 24),
    (3, 12): _Layout(24, 24, 32, 40),
}


def frame_locals(frame: types.FrameType) -> dict[str, Any] | None:
    """A running frame's variables by name; None where they cannot be read without a trace."""
    code = frame.f_code
    # From 3.13 on `f_locals` is a view that writes nothing (PEP 667).
    if not code.co_flags & _OPTIMIZED or sys.version_info >= (3, 13):
        return dict(frame.f_locals)
    layout = _proven()
    if layout is None:
        # Nobody knows whether the frame has a dictionary: only calls that could have handed it out give a sign.
        # Without proof: a function that never calls one of these cannot have given its dictionary away.
        return None if _HANDED_OUT_BY & {*code.co_names} else _read_and_emptied(frame)
    address = _address_of_dict(frame, layout)
    if address is None:
        return None
    return _read_and_restored(frame, address) if address else _read_and_emptied(frame)


def _read_and_emptied(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a frame whose dictionary nobody else has."""
    cache = frame.f_locals
    found = dict(cache)
    # What it holds would keep the variables alive after they are bound anew.
    cache.clear()
    return found


def _read_and_restored(frame: types.FrameType, address: int) -> dict[str, Any]:
    """The variables of a frame whose dictionary is at an address already: it is left with what it had, in its order."""
    # Before `f_locals` is read, which overwrites it.
    cache: dict[str, Any] = ctypes.cast(address, ctypes.py_object).value
    before = dict(cache)
    found = dict(frame.f_locals)
    # Names that the program's dictionary did not have when it was handed out.
    for name in found.keys() - before.keys():
        del cache[name]
    if len(cache) < len(before):  # a variable was deleted since
        cache.clear()
    # Entries that did not change are left alone: the program may be going through this very dictionary.
    for name, value in before.items():
        if name not in cache or cache[name] is not value:
            cache[name] = value
    return found


def _word(address: int) -> int:
    return int(ctypes.c_size_t.from_address(address).value)


def _address_of_dict(frame: types.FrameType, layout: _Layout) -> int | None:
    """The address of a frame's dictionary of variables, 0 where it has none; None where what lies beside it in memory
    is not what Python says."""
    base = id(frame) if layout.behind is None else _word(id(frame) + layout.behind)
    # Two neighbours that Python does tell prove the place: a wrong word would be read as a pointer.
    if _word(base + layout.globals) != id(frame.f_globals) or _word(base + layout.builtins) != id(frame.f_builtins):
        return None
    return _word(base + layout.locals)


_proofs: list[_Layout | None] = []


def _proven() -> _Layout | None:
    """The layout of frames, where two frames of our own have shown that it holds here; else None."""
    # Once in a process.
    if not _proofs:
        layout = _LAYOUTS.get(sys.version_info[:2]) if sys.implementation.name == "cpython" else None
        _proofs.append(layout if layout is not None and _without_dict(layout) and _with_dict(layout) else None)
    return _proofs[0]


def _without_dict(layout: _Layout) -> bool:
    # A frame that has not called `locals()` must show none,
    return _address_of_dict(sys._getframe(), layout) == 0


def _with_dict(layout: _Layout) -> bool:
    mine = locals()
    # A frame that has a dictionary must show that very one.
    return _address_of_dict(sys._getframe(), layout) == id(mine)
