"""Compares numbers with what a cast makes of them: large ones that lie close together become the same number.

Data are cast before the first step, when no operators are heard. So the functions that cast are wrapped until then;
in sampled steps the operator is heard. Once a cast has lost something, differences of such numbers are heard as well.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import Host, Place, SiteWatcher, StepKind, called_by_user, overloads, tap
from torchvet.probes.internals import private
from torchvet.probes.numerics import half
from torchvet.probes.numerics.large_numbers import MOST, NARROW, is_large, is_level, level_of_close, some_rows, step_at
from torchvet.probes.objects.arrays import is_array
from torchvet.recording.records.numeric import DIGITS, LostDifference

_WHAT = "numbers that are cast to fewer digits"
_WIDE = (torch.float64, torch.int64, torch.int32)
_MAKERS = ("tensor", "as_tensor")
_METHODS = ("to", "float", "half", "bfloat16", "type")
_SUBTRACTS = ("__sub__", "__rsub__", "__isub__", "sub", "sub_", "subtract", "rsub", "diff")
"""Methods of tensors that take differences."""
_DIFFERENCES = ("sub", "subtract", "rsub", "diff")
"""Functions that do."""
_SUBTRACTED = overloads("sub.Tensor sub_.Tensor rsub.Tensor")
_MOST_CALLS = 16
"""Calls of one line that are looked at."""
_MOST_CALLERS = 4096
_MOST_COLUMNS = 16
_FEWEST = 16
"""Different differences below which nothing is said of them. Chosen, not measured."""
_FEWEST_VALUES = 32
"""The same of numbers. Chosen, not measured."""
_PREPARATION = 2
"""Steps after which data are prepared by what is sampled only."""
_OWN = (torch.Tensor, torch.nn.Parameter)
_kept: list[Any] = []
"""What was told to TorchScript, which knows functions by their identity: it must not be used again."""


class LostDifferences(SiteWatcher[Place, LostDifference]):
    """Casts of large numbers that lie closer together than the new type's steps."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._calls: Counter[Place] = Counter()
        self._callers: Counter[tuple[int, int]] = Counter()
        self._allowance = half.Allowance(0.3, 0.002)
        self._prepares = True
        self._inside = False
        """Whether a cast is one of torchvet's own."""
        self._thread = threading.get_ident()
        self._heard: list[_Heard] = []
        self._subtractions: Counter[Place] = Counter()

    def install(self) -> None:
        """Hear casts."""
        self.host.hear([torch.ops.aten._to_copy.default], self._converted)
        self.host.hear(_SUBTRACTED, self._subtracted)
        # Its table is made once, of what then stands in torch.
        private.device_constructors()
        for name in _MAKERS:
            self.replace(torch, name, functools.partial(self._maker, name))
        # Before anything is lost: who calls them has them in hand as its arguments are cast.
        for name in _DIFFERENCES:
            self.replace(torch, name, functools.partial(self._function_as, name))
        for name in _METHODS:
            self.replace(torch.Tensor, name, self._method_as(name, self._method))
        # The compiler has tables of torch's functions, too.
        self.replace(torch, "compile", tap(self.host, None, before=self._compiles))
        # Whoever hears torch's functions is to hear none of ours, and may know them by identity: an export does.
        self.replace(TorchFunctionMode, "__enter__", self._mode)

    def _hear_differences(self) -> None:
        """A cast has lost something: are differences taken of what is left?"""
        for name in _SUBTRACTS:
            if hasattr(torch.Tensor, name):
                self.replace(torch.Tensor, name, self._method_as(name, self._difference))

    def _method_as(self, name: str, told: Callable[..., None]) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            self._heard.append(_HeardMethod(name, original, told))
            return self._heard[-1]

        return wrap

    def _maker(self, name: str, original: Any) -> Any:
        return self._heard_as(name, original, functools.partial(self._made, original))

    def _function_as(self, name: str, original: Any) -> Any:
        return self._heard_as(name, original, self._function)

    def _mode(self, original: Any) -> Any:
        @functools.wraps(original)
        def entered(mode: Any) -> Any:
            if not isinstance(mode, private.DeviceContext):
                self._end()
            return original(mode)

        return entered

    def _heard_as(self, name: str, original: Any, told: Callable[..., None]) -> Any:
        ours = _Heard(name, original, told)
        self._heard.append(ours)
        private.register_builtin(ours, f"aten::{name}")
        _kept.append(ours)
        return ours

    def _compiles(self, *_: Any, **__: Any) -> None:
        self._end()

    def settle(self, tick: int, kind: StepKind) -> None:
        """Data are prepared by now."""
        if tick >= _PREPARATION:
            self._end()

    def _end(self) -> None:
        if self._prepares:
            self._prepares = False
            self.remove()

    def remove(self) -> None:
        """See `Watcher`."""
        super().remove()
        # They stay where a program has imported them by name: without the session.
        for one in self._heard:
            one.told = None
        self._heard.clear()

    # What is heard ------------------------------------------------------------------------------------------------

    def _counts(self, frame: FrameType) -> bool:
        """Whether a call by this frame is looked at."""
        if not self._prepares or self._inside:
            return False
        # Modes of the program's, and what traces, would hear of what is compared.
        if private.modes_on() or private.tracing_state() is not None:
            return False
        # First of all the number of calls: data may be cast one by one.
        key = id(frame.f_code), frame.f_lineno
        if self._callers[key] >= _MOST_CALLS or len(self._callers) >= _MOST_CALLERS:
            return False
        self._callers[key] += 1
        # In sampled steps the operator itself is heard. One thread has one allowance.
        host = self.host
        return host.active and not host.sampling and threading.get_ident() == self._thread

    def _made(self, original: Any, made: Any, data: Any, *_: Any) -> None:
        """`torch.tensor(data)` or `torch.as_tensor(data)` gave this."""
        if not self._prepares or type(made) is not torch.Tensor or made.dtype not in NARROW:
            return
        # Called by the one that stands in place of the function.
        if made.numel() < _FEWEST or data is made or not self._counts(sys._getframe(2)):
            return
        with self.host.looking(_WHAT):
            if isinstance(data, torch.Tensor):
                self._measure(called_by_user, data, made.dtype)
            elif type(data) in (list, tuple):
                rows = _rows(len(data), made.numel())
                if is_plain(made) and is_large(made.detach()[:rows]):
                    wide = functools.partial(original, data[:rows], dtype=torch.float64, device="cpu")
                    self._measure(called_by_user, wide, made.dtype)
            elif is_array(type(data)) and data.dtype.name in ("float64", "int64", "int32"):
                self._measure(called_by_user, lambda: original(_part(data), device="cpu"), made.dtype)

    def _method(self, made: Any, on: Any, *_: Any, **__: Any) -> None:
        """A method that may cast gave this."""
        # Types first: subclasses hear of every question.
        cast = type(made) is torch.Tensor and type(on) in _OWN and made.dtype in NARROW and made.dtype is not on.dtype
        if cast and self._counts(sys._getframe(2)):
            with self.host.looking(_WHAT):
                self._measure(called_by_user, on, made.dtype)

    def _function(self, made: Any, data: Any, *others: Any) -> None:
        """`torch.diff(data)` and its like gave this."""
        if self.sites and type(made) is torch.Tensor and self._counts(sys._getframe(2)):
            with self.host.looking(_WHAT):
                self._judge(called_by_user, made, (data, *others))

    def _difference(self, made: Any, *operands: Any, **_: Any) -> None:
        """A method that takes differences gave this."""
        if type(made) is torch.Tensor and self._counts(sys._getframe(2)):
            with self.host.looking(_WHAT):
                self._judge(called_by_user, made, operands)

    def _subtracted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """The operator, in a sampled step."""
        if self.sites and not self._inside and type(out) is torch.Tensor:
            self._judge(self.host.line, out, args)

    def _converted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """The operator, in a sampled step."""
        if out.dtype in NARROW and out.dtype is not args[0].dtype:
            self._measure(self.host.line, args[0], out.dtype)

    # What is measured ---------------------------------------------------------------------------------------------

    def _measure(self, where: Callable[[], Place | None], source: Any, dtype: torch.dtype) -> None:
        if self._inside:
            return
        self._inside = True
        try:
            self._compare(where, source, dtype)
        finally:
            self._inside = False

    def _compare(self, where: Callable[[], Place | None], source: Any, dtype: torch.dtype) -> None:
        began = time.thread_time()
        place = where() if self._allowance.left() else None
        if place is None or self._calls[place] >= _MOST_CALLS:
            return
        self._calls[place] += 1
        with torch.no_grad():
            found = _compared(source if isinstance(source, torch.Tensor) else source(), dtype)
        if found is not None:
            before = self.sites.get(place)
            what, some, left, largest = found
            calls = 1 + (before.calls if before is not None else 0)
            # The call that shows most stands for all.
            used = before.subtracted if before is not None else None
            if before is None or some > before.some:
                before = LostDifference(place=place, dtype=NARROW[dtype], what=what, some=some, left=left, at=largest)
                before.subtracted = used
            before.calls = calls
            self.sites[place] = before
            if len(self.sites) == 1 and calls == 1 and self._prepares:
                self._hear_differences()
        self._allowance.spend(began)

    def _judge(self, where: Callable[[], Place | None], made: torch.Tensor, operands: tuple[Any, ...]) -> None:
        """Are these differences of what a cast has left, and within a few steps of its type?"""
        began = time.thread_time()
        asked = [one for one in self.sites.values() if one.subtracted is None and one.dtype == NARROW.get(made.dtype)]
        place = where() if asked and self._allowance.left() else None
        if place is None or self._subtractions[place] >= _MOST_CALLS:
            return
        self._subtractions[place] += 1
        # Of one that is changed in place only the other is what it was.
        operand = next((one for one in operands if isinstance(one, torch.Tensor) and one is not made), None)
        level = self._level(made, operand)
        for one in asked:
            if level is not None and is_level(one.at, level):
                one.subtracted = place
        self._allowance.spend(began)

    def _level(self, made: torch.Tensor, operand: Any) -> float | None:
        self._inside = True
        try:
            with torch.no_grad():
                return level_of_close(made, operand)
        finally:
            self._inside = False


class _Heard:
    """Stands in place of a function of torch's own, and tells of its results. No Python function: as an attribute of
    a class it must not become a method, and pickle is to find it by torch's name."""

    def __init__(self, name: str, original: Any, told: Callable[..., None]) -> None:
        self.__name__, self.__doc__, self.__wrapped__ = name, original.__doc__, original
        self.__module__ = getattr(original, "__module__", None)  # type: ignore[assignment]
        self.told: Callable[..., None] | None = told

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function."""
        made = self.__wrapped__(*args, **kwargs)
        # By a name: another thread may end the hearing meanwhile.
        told = self.told
        if told is not None and not torch.compiler.is_compiling():
            told(made, *(args or (kwargs.get("data", kwargs.get("input")),)))
        return made

    # Tables of the compiler's, and of devices that are set, are found in by either, whichever they were made of.
    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (f"torch:{self.__name__}",)

    def __getattr__(self, name: str) -> Any:
        # `__qualname__` and what else a function has; before there is any, as a copy is made, nothing.
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


class _HeardMethod(_Heard):
    """The same of a method of tensors: as an attribute of their class it does become one."""

    def __init__(self, name: str, original: Any, told: Callable[..., None]) -> None:
        super().__init__(name, original, told)
        # By which `torch.fx` writes it down.
        self.__module__ = "torch.Tensor"

    def __get__(self, on: Any, kind: Any = None) -> Any:
        return self if on is None else types.MethodType(self, on)

    def __reduce__(self) -> Any:
        return pkgutil.resolve_name, (f"torch:Tensor.{self.__name__}",)


_Found = tuple[str, int, int, float]
"""What became fewer, how many there were, how many are left, and at what number."""


def _compared(source: torch.Tensor, dtype: torch.dtype) -> _Found | None:
    """How many different numbers, or differences of neighbors, become how many."""
    wide = source.dtype in _WIDE and not (source.requires_grad or private.is_functorch_wrapped(source))
    if not wide or not is_plain(source) or source.numel() < _FEWEST:
        return None
    some = some_rows(source.detach())
    if not is_large(some, DIGITS[NARROW[dtype]]):
        return None
    found = [_lost(rows, dtype) for rows in _neighbors(some.double())]
    # Differences say more than values do: all rows of a table may be different.
    told = [one for one in found if one is not None]
    return max(told, key=lambda one: (one[0] == "differences", one[1]), default=None)


def _rows(length: int, elements: int) -> int:
    """How many leading rows have as many elements as are compared."""
    return max(1, MOST * length // max(1, elements))


def _part(array: Any) -> Any:
    """Leading rows of an array. Copied: torch warns of arrays that cannot be written to, and a view would be one."""
    part = array[: _rows(len(array), array.size)]
    return (part if part.size <= MOST else part.reshape(-1)[:MOST]).copy()


def _neighbors(table: torch.Tensor) -> list[torch.Tensor]:
    """Rows whose elements are neighbors: those of a table, and its columns."""
    if table.dim() < 2:
        return [table.unsqueeze(0)]
    columns = range(min(table.shape[1], _MOST_COLUMNS)) if len(table) > 1 else ()
    return [table, *(table[:, one].unsqueeze(0) for one in columns)]


def _lost(rows: torch.Tensor, dtype: torch.dtype) -> _Found | None:
    cast = rows.to(dtype).double()
    large = rows.isfinite() & cast.isfinite() & (rows.abs() > DIGITS[NARROW[dtype]])
    if not bool(large.any()):
        return None
    largest = float(rows[large].abs().median())
    pairs = large[:, 1:] & large[:, :-1]
    gaps, kept = rows.diff(dim=1)[pairs], cast.diff(dim=1)[pairs]
    moved = gaps != 0
    some, left = _distinct(gaps), _distinct(kept)
    # Longer ones keep most of their digits, however many are the same.
    close = bool(moved.any()) and float(gaps[moved].abs().median()) < 2 * step_at(largest, dtype)
    if close and some >= _FEWEST and left < some / 2:
        return "differences", some, left, largest
    some, left = _distinct(rows[large]), _distinct(cast[large])
    return ("values", some, left, largest) if some >= _FEWEST_VALUES and left < some / 2 else None


def _distinct(numbers: torch.Tensor) -> int:
    return len(torch.unique(numbers))
