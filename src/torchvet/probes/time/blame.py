"""Finds the instruction that took the time where a look comes a little after it.

Python hands its lock over after calls and at the ends of loops, and not after an operator. A look that waited for a
comparison of two lists finds the thread at the call that follows. Where that call is one that takes no time, the
operator before it has taken it.
"""

from __future__ import annotations

import builtins
import dis
import sys
import time
from collections.abc import Iterable
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATORS = _words(
    """BINARY_OP COMPARE_OP CONTAINS_OP BINARY_SUBSCR BINARY_SLICE STORE_SUBSCR STORE_SLICE DELETE_SUBSCR FORMAT_VALUE
    FORMAT_SIMPLE FORMAT_WITH_SPEC BUILD_STRING LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE UNARY_NOT UNARY_NEGATIVE
    UNARY_INVERT DELETE_NAME DELETE_FAST DELETE_GLOBAL DELETE_DEREF DELETE_ATTR"""
)
_CALLS = _words("PRECALL CALL CALL_KW CALL_FUNCTION_EX")
_ATTRIBUTES = _words("LOAD_METHOD LOAD_ATTR")
_FLAGGED = _words("LOAD_GLOBAL LOAD_ATTR" if sys.version_info >= (3, 12) else "LOAD_GLOBAL")
"""Instructions whose number of a name has a flag in its lowest bit."""
_QUICK_METHODS = _words("append add get items keys values pop size dim numel perf_counter monotonic time zero_grad")
_QUICK_FUNCTIONS = (len, isinstance, id, range, zip, enumerate, getattr, hasattr, type, iter, callable)
_QUICK = frozenset(map(id, (*_QUICK_FUNCTIONS, time.time, time.perf_counter, time.monotonic, time.perf_counter_ns)))
_FAR = 120
"""Code units that are gone back at most."""

Span = tuple[int, int, int, int]
"""First line, column, last line, column."""
Position = tuple[int | None, int | None, int | None, int | None]
"""The same as Python has it: first line, last line, column, column."""


class Instruction(NamedTuple):
    """One instruction: what it does, with which name, and the text that it was made from."""

    does: str
    name: str
    span: Span | None


def before_quick_call(frame: FrameType, entered: bool) -> Span | None:
    """The operator that took the time before a call that takes none; None where the call may have taken it, or nothing
    before it. With `entered` the function called has only begun: the call has taken none, whatever it is.

    From Python 3.11 on; before, code has no positions.
    """
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return None
    code = _until(frame.f_code, frame.f_lasti, positions())
    if not code or code[-1].does not in _CALLS:
        return None
    # A call that takes time has earned the look's seconds itself.
    if not (entered or _is_quick(_callee(code), frame)):
        return None
    call = code.pop().span
    while code:
        one = code[-1]
        if one.does in _OPERATORS or (one.does in _CALLS and _makes(_callee(code), frame)):
            return one.span
        # The function's start, or another call: that one would have handed the lock over.
        if one.does == "RESUME" or (one.does in _CALLS and one.span != call):
            return None
        code.pop()
    return None


def _until(code: CodeType, at: int, positions: Iterable[Position]) -> list[Instruction]:
    """The last instructions of a function, up to the one where it is."""
    first = max(0, at // 2 - _FAR)
    # Only the last instructions: functions may be thousands of units long.
    raw = code.co_code[2 * first : at + 2]
    found: list[Instruction] = []
    higher = 0
    for unit, place in enumerate(islice(positions, first, at // 2 + 1)):
        does, number = dis.opname[raw[2 * unit]], raw[2 * unit + 1] | higher
        # Arguments above 255 are written in prefixes.
        higher = number << 8 if does == "EXTENDED_ARG" else 0
        # Inline caches of the adaptive interpreter are no instructions.
        if does not in ("CACHE", "EXTENDED_ARG"):
            found.append(Instruction(does, _name(code, does, number), _span(place)))
    return found


def _name(code: CodeType, does: str, number: int) -> str:
    if does not in ("LOAD_GLOBAL", "LOAD_NAME") and does not in _ATTRIBUTES:
        return ""
    number = number >> 1 if does in _FLAGGED else number
    return code.co_names[number] if number < len(code.co_names) else ""


def _span(place: Position) -> Span | None:
    first, last, start, end = place
    if first is None or last is None or start is None or end is None:
        return None
    return first, start, last, end


def _callee(code: list[Instruction]) -> Instruction | None:
    """What loads the function that the last instruction calls: the longest text that begins where the call does, and
    is shorter."""
    call, best = code[-1].span, None
    for one in code:
        if call is None or one.span is None or not one.name or one.span[:2] != call[:2] or one.span[2:] >= call[2:]:
            continue
        if best is None or best.span is None or one.span[2:] >= best.span[2:]:
            best = one
    return best


def _object(callee: Instruction | None, frame: FrameType) -> object:
    """The function itself, where it is a module's variable or built in."""
    if callee is None or callee.does in _ATTRIBUTES:
        return None
    return frame.f_globals.get(callee.name, vars(builtins).get(callee.name))


def _is_quick(callee: Instruction | None, frame: FrameType) -> bool:
    if callee is not None and callee.does in _ATTRIBUTES:
        return callee.name in _QUICK_METHODS
    return id(_object(callee, frame)) in _QUICK


def _makes(callee: Instruction | None, frame: FrameType) -> bool:
    """Whether a class is called that is built in (`list(...)`): some of these calls hand no lock over."""
    one = _object(callee, frame)
    return isinstance(one, type) and one.__module__ == "builtins"
