"""Finds lines that copy a whole window of what came last (a history, the rows of a monitor) to take in one row, and
those that copy all that they have joined so far."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from torchvet.probes.base.elements import is_plain
from torchvet.probes.base.kit import ByStorage, Host, Place, Record, bare_name
from torchvet.probes.base.ledger import place_of_line
from torchvet.probes.time.line_operators import within_backward
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import SlidingWindow

_aten = torch.ops.aten
_LEAST = 1 << 15
"""Bytes of a result below which to copy it costs about what it costs to write a row."""
_KEPT = 7 / 8
"""The part of a result from which on it is the earlier one and a little more."""
_ROWS = 8, 1024
"""Tensors that are joined: fewer are no window of which so much is kept, more take long to compare."""
_RECENT = 16
"""Joins of one line that are remembered: one line serves several windows."""
_MOST, _SHOWN = 1000, 20

Rows = list[tuple[int, int, int]]
"""Tensors that were joined, by what they hold: the number of the storage, the offset in it, its version."""


@dataclass(slots=True)
class _Content:
    """What a storage holds, and the copies of it: what line has made it, and from what."""

    line: _Line | None
    numel: int
    version: int
    own: weakref.ref[torch.UntypedStorage]
    parent: weakref.ref[torch.UntypedStorage] | None = None
    """The window from which it was made."""
    writes: int = 0
    written: int = 0
    """Elements that were written since it was made."""
    read: bool = False
    """Whether an operator has read it that does not move it on."""
    copied: tuple[int, float, Any] = (0, 0.0, None)
    """Of its last copy: the offset of what was copied, the seconds, and the line."""


@dataclass
class _Line:
    """A line that joins or rolls tensors."""

    id: int
    place: Place
    first: int
    """The tick since which it has run in every step that was seen."""
    last: int
    operator: str = ""
    bytes: int = 0
    made: int = 0
    copies: int = 0
    read: int = 0
    kept: int = 0
    graph: int = 0
    grown: int = 0
    """Results that are an earlier one and more; other operators had read so many of those meanwhile."""
    grown_read: int = 0
    seconds: float = 0.0
    all: float = 0.0
    pending: float = 0.0
    """Of its operators since the last result."""
    ticks: set[int] = field(default_factory=set)
    recent: list[tuple[Rows, _Content]] = field(default_factory=list)


class SlidingWindows(TimeWatcher):
    """Windows that are copied whole for each new row.

    A result is a window that moved on if it consists of a part of what the same line has made before, and of little
    else: `cat` of a slice of that, `roll` of it after a few elements were written, `copy_` of a part of a storage to
    another place in it, or a join of the tensors of an earlier join, moved by a few. One that consists of all that the
    line has made before, and of more, grows. Each storage has a note of the line that has made it, and views of it have
    the same.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._contents: ByStorage[_Content] = ByStorage()
        self._numbers: ByStorage[int] = ByStorage()
        self._count = count(1)
        self._lines: dict[tuple[int, int], _Line] = {}
        self._views: dict[Any, bool] = {}
        self._tick = -1
        self._heard = {
            _aten.cat.default: self._joined,
            _aten.stack.default: self._joined,
            _aten.roll.default: self._rolled,
            _aten.clone.default: self._copied,
            _aten._to_copy.default: self._copied,
            _aten.copy_.default: self._written,
            _aten.fill_.Scalar: self._written,
            _aten.fill_.Tensor: self._written,
            _aten.zero_.default: self._written,
        }

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self.host.ledger.listeners.append(self._operator)

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._lines.clear()
        self._contents.clear()
        self._numbers.clear()

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if self.host.tick != self._tick:
            self._tick = self.host.tick
            self._contents.sweep()
            self._numbers.sweep()
        at = None
        if self._lines:
            user, inner = self.host.ledger.located(sys._getframe(2))
            at = user or inner
            line = self._lines.get((id(at[0]), at[1])) if at is not None else None
            if line is not None:
                line.pending += self.host.ledger.took
        heard = self._heard.get(func)
        if heard is None:
            if self._contents and not self._is_view(func):
                self._note_reads(args)
        elif is_plain(out) and not within_backward():
            heard(func, args, out)

    def _is_view(self, func: Any) -> bool:
        """Whether an operator only looks at its operands in another way."""
        known = self._views.get(func)
        if known is None:
            # Higher-order operators have no schema.
            aliases = [one.alias_info for one in func._schema.returns] if hasattr(func, "_schema") else []
            known = bool(aliases) and all(one is not None and not one.is_write for one in aliases)
            self._views[func] = known
        return known

    def _note_reads(self, args: Iterable[Any], but: _Content | None = None) -> None:
        """An operator has read these, and does not move them on."""
        for arg in args:
            for one in arg if isinstance(arg, (list, tuple)) else (arg,):
                content = self._contents.get(one)
                if content is not None and content is not but:
                    content.read = True

    def _line(self) -> _Line | None:
        """The line that runs; None where that is none of the user's."""
        user, inner = self.host.ledger.located(sys._getframe(4))
        at = user or inner
        if at is None:
            return None
        line = self._lines.get((id(at[0]), at[1]))
        if line is None:
            place = place_of_line(at) if len(self._lines) < _MOST else None
            if place is None:
                return None
            line = _Line(len(self._lines), place, self._tick, self._tick, pending=self.host.ledger.took)
            self._lines[id(at[0]), at[1]] = line
        if self._tick > line.last + 1:
            line.first = self._tick
            line.recent.clear()
        line.last = self._tick
        return line

    def _joined(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """`cat` or `stack`: is most of it a part of what the line has made before, or are these an earlier join's?"""
        tensors = args[0]
        line = self._line() if _bytes(out) >= _LEAST else None
        if line is None:
            self._note_reads(args)
            return
        largest = max(tensors, key=torch.Tensor.numel)
        share = largest.numel() / out.numel()
        before, grown = self._earlier(line, largest, out)
        self._note_reads(args, but=before or grown)
        # As for the line's time: what came before a step that was seen was made unseen.
        if grown is not None and self._tick > line.first:
            self._count_growth(line, grown, share, largest.requires_grad)
        rows = self._rows(tensors)
        if before is None and rows:
            before, share = self._moved(line, rows)
        graph = any(one.requires_grad for one in tensors) if rows else largest.requires_grad
        made = self._result(line, func, out, before, share, graph)
        if rows:
            kept = [one for one in line.recent if one[1] is not before]
            line.recent = [*kept[-_RECENT + 1 :], (rows, made)]

    def _earlier(
        self, line: _Line, largest: torch.Tensor, out: torch.Tensor
    ) -> tuple[_Content | None, _Content | None]:
        """What the line has made before, if the largest part of a join is that: a window moved on, or all of it."""
        before = self._contents.get(largest)
        if before is None or before.line is not line or largest.numel() >= out.numel():
            return None, None
        if largest.numel() == before.numel:
            return None, before
        moved = largest.numel() >= _KEPT * out.numel() and largest.numel() < before.numel == out.numel()
        return (before if moved else None), None

    def _count_growth(self, line: _Line, before: _Content, share: float, graph: bool) -> None:
        line.grown += 1
        line.grown_read += before.read
        line.graph += graph
        line.seconds += share * self.host.ledger.took
        line.ticks.add(self._tick)

    def _rows(self, tensors: Sequence[torch.Tensor]) -> Rows:
        """What many tensors hold; empty for few, and for what cannot be told."""
        if not _ROWS[0] <= len(tensors) <= _ROWS[1] or not all(is_plain(one) for one in tensors):
            return []
        rows: Rows = []
        for one in tensors:
            number = self._numbers.get(one)
            if number is None:
                number = next(self._count)
                self._numbers.put(one, number)
            rows.append((number, int(one.storage_offset()), _version(one)))
        return rows

    @staticmethod
    def _moved(line: _Line, rows: Rows) -> tuple[_Content | None, float]:
        """The earlier join of a line of which these are the tensors, moved by a few; what part of them it had."""
        for before, content in reversed(line.recent):
            for old, new in ((before, rows), (before[::-1], rows[::-1])):
                by = old.index(new[0]) if len(old) == len(new) and new[0] in old else 0
                if 0 < by <= (1 - _KEPT) * len(new) and new[:-by] == old[by:]:
                    return content, 1 - by / len(new)
        return None, 0.0

    def _rolled(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """`roll`: has the line made what is rolled, and were a few elements of it written since?"""
        line = self._line() if _bytes(out) >= _LEAST else None
        before = self._contents.get(args[0])
        if before is not None and not (
            line is not None
            and before.line is line
            and before.numel == out.numel()
            and 0 < before.written <= (1 - _KEPT) * out.numel()
            # Nothing else has changed it.
            and _version(args[0]) in (before.version + before.writes, -1)
        ):
            before.read, before = True, None
        if line is not None:
            self._result(line, func, out, before, 1.0, args[0].requires_grad)

    def _copied(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """`clone`: it holds what the other holds."""
        source = args[0]
        if _bytes(out) < _LEAST or not is_plain(source):
            return
        content = self._contents.get(source)
        if content is None:
            whole = source.untyped_storage()
            content = _Content(None, whole.nbytes() // source.element_size(), _version(source), weakref.ref(whole))
            self._contents.put(source, content)
        user, inner = self.host.ledger.located(sys._getframe(3))
        at = user or inner
        content.copied = source.storage_offset(), self.host.ledger.took, at and (id(at[0]), at[1])
        self._contents.put(out, content)

    def _written(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """`copy_` and the like: a few elements are written, or nearly all are moved within their storage."""
        content, source = self._contents.get(out), args[1] if func is _aten.copy_.default else None
        if content is None or source is None or self._contents.get(source) is not content:
            self._note_reads((source,))
            if content is not None:
                content.writes += 1
                content.written += out.numel()
            return
        storage = out.untyped_storage()
        offset, took, _ = content.copied
        moves = content.own() is storage and offset != out.storage_offset()
        share = out.numel() / content.numel
        line = self._line() if moves and _KEPT <= share < 1 and _bytes(out) >= _LEAST else None
        if line is None:
            content.read = True
            return
        here = self._lines.get(content.copied[2]) is line
        self._count_copy(line, func, out, content, 1.0, out.requires_grad, took if here else 0.0)
        content.line = line

    def _result(
        self, line: _Line, func: Any, out: torch.Tensor, before: _Content | None, share: float, graph: bool
    ) -> _Content:
        """Note what a line has made, from a window of its own or from something else."""
        if before is not None:
            line.kept += before.parent is not None and before.parent() is not None
            self._count_copy(line, func, out, before, share, graph)
        # The first step of several in a row: what came before was made unseen.
        elif self._tick > line.first:
            line.made += 1
            line.all += line.pending
        line.bytes = max(line.bytes, _bytes(out))
        line.pending = 0.0
        own = weakref.ref(out.untyped_storage())
        made = _Content(line, out.numel(), _version(out), own, before.own if before is not None else None)
        self._contents.put(out, made)
        return made

    def _count_copy(
        self, line: _Line, func: Any, out: torch.Tensor, before: _Content, share: float, graph: bool, more: float = 0.0
    ) -> None:
        line.operator, line.bytes = bare_name(func), _bytes(out)
        line.made += 1
        line.copies += 1
        line.read += before.read
        line.graph += graph
        line.seconds += share * self.host.ledger.took + more
        line.all += line.pending
        line.pending = 0.0
        line.ticks.add(self._tick)
        before.read = False

    def totals(self, tick: int) -> Iterable[Record]:
        """Lines whose windows moved on, those that took most first."""
        found = sorted((one for one in self._lines.values() if one.copies or one.grown), key=lambda one: -one.seconds)
        for line in found[:_SHOWN]:
            yield SlidingWindow(
                id=line.id,
                place=line.place,
                operator=line.operator or "cat",
                bytes=line.bytes,
                steps=len(line.ticks),
                made=line.made,
                copies=line.copies,
                seconds=line.seconds,
                all=line.all,
                read=line.read,
                kept=line.kept,
                graph=line.graph,
                grown=line.grown,
                grown_read=line.grown_read,
            )


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to; -1 of an inference tensor, which does not tell."""
    return -1 if tensor.is_inference() else tensor._version
