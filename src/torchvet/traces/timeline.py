"""Gathers a trace's events into columns: what ran on devices, what the host called and did, by thread."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from torchvet.readers.kineto_events import EMPTY, Arguments, Event
from torchvet.traces import names
from torchvet.traces.intervals import stretch

MOST_NAMES = 1 << 16
"""Names remembered: frames of built-in methods have addresses in theirs."""
LONGEST, FARTHEST = 1e13, 1e18
"""Microseconds: a hundred days, and thirty thousand years. What is beyond is no time."""
SHORTEST_CALL = 20.0
"""Microseconds that a call into the driver must have lasted to be kept if it neither launches, copies nor waits."""
SHORTEST_FRAME = 20.0
"""Microseconds that a Python function must have lasted to be kept: frames of a trace with stacks are legion."""
_STACKED = re.compile(
    r"^aten::(item|_local_scalar_dense|to|_to_copy|copy_|nonzero|is_nonzero|index|masked_select|unique\w*|_unique\w*|"
    r"contiguous|clone|equal|is_pinned|pin_memory)$|^(enumerate\(Data|Optimizer\.|Python GC)"
)
_SHAPED = re.compile(r"^aten::(mm|bmm|addmm|baddbmm|linear|_scaled_mm|addbmm)$")
Thread = int | str


class Work(NamedTuple):
    """Something that ran on a device."""

    start: float
    end: float
    device: Thread
    stream: Thread
    correlation: Thread | float | None
    kind: str
    name: str
    bytes: int


class Call(NamedTuple):
    """A call of the host into a device's driver."""

    start: float
    end: float
    thread: Thread
    correlation: Thread | float | None
    name: str
    external: Thread | float | None


class Item(NamedTuple):
    """A span of the host: an operator, an annotation, a frame of Python."""

    start: float
    end: float
    thread: Thread
    name: str


Memory = tuple[float, int, int]
"""When, and what the allocator then held and had reserved, in bytes."""


_About = tuple[str, str, bool]
"""A name, the same string for all events that have it; what it stands for; whether arguments are looked at."""
_OUTERMOST = frozenset(("operator", "backward"))
_NOTHING = Item(math.inf, -math.inf, 0, "")
_SORTS: dict[object, str] = {
    **dict(names.DEVICE.items()), **dict.fromkeys(names.RUNTIME, "call"), **dict.fromkeys(names.HOST, "host"),
    "python_function": "frame", "overhead": "overhead",
}  # fmt: skip
"""By category, what kind of column an event belongs to."""


class Timeline:
    """All that the analyses ask, in microseconds; lists are in the file's order."""

    def __init__(self) -> None:
        self.work: list[Work] = []
        self.calls: list[Call] = []
        self.driver: dict[str, list[Call]] = {}
        """The same calls by what they do (`names.Driver`), those without an interest left out."""
        self.launches: dict[object, Call] = {}
        """The call that asked for a piece of work, by the correlation of both."""
        self.operators: list[Item] = []
        """Those within the one before them on their thread are left out, unless they may wait, copy or multiply."""
        self.operator_count = 0
        self.spans: dict[str, list[Item]] = {}
        """Spans of a kind other than operator, by kind (`names.Host`)."""
        self.frames: list[Item] = []
        self.overhead: list[tuple[float, float]] = []
        self.memory: dict[tuple[object, object], list[Memory]] = {}
        self.stacks: dict[tuple[float, Thread], bytes] = {}
        self.shapes: dict[object, tuple[bytes, bytes]] = {}
        """Raw input sizes and types of matrix products, by external id."""
        self.shaped = False
        """Whether the sizes of inputs were recorded at all."""
        self.odd = 0
        """Events with times that are none; of negative durations the beginning counts."""
        known: dict[str, dict[str, _About]] = {sort: {} for sort in _SORTS.values()}
        self._columns = {category: (sort, known[sort]) for category, sort in _SORTS.items()}
        self._threads: dict[object, Thread] = {}
        self._outer: dict[Thread, Item] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Sort a batch of events into the columns."""
        columns = self._columns
        for event in events:
            if event.ph == "X":
                column = columns.get(event.cat or event.pid)
                if column is not None:
                    self._add_lasting(event, *column)
            elif event.name == "[memory]":
                self._add_memory(event)

    def _add_lasting(self, event: Event, sort: str, known: dict[str, _About]) -> None:
        usable = self._usable(event)
        if usable is None:
            return
        start, length, name = usable
        # Before anything is looked up: most events of a trace with stacks end here.
        if sort == "frame" and length < SHORTEST_FRAME:
            return
        name, kind, kept = known.get(name) or self._about(sort, known, name)
        thread = self._threads.get(event.tid)
        item = Item(start, start + length, self._thread(event.tid) if thread is None else thread, name)
        if sort == "host":
            self._add_host(event, item, kind, kept)
        elif sort == "call":
            self._add_call(event, item, kind)
        elif sort == "frame":
            (self.frames if kind == "frame" else self.spans.setdefault(kind, [])).append(item)
        elif sort == "overhead":
            self.overhead.append(stretch(item))
        else:
            self._add_work(event, item, sort)

    def _usable(self, event: Event) -> tuple[float, float, str] | None:
        """When an event began, how long it lasted, its name; None if it says none of it. Files hold any value there."""
        start, length, name = event.ts, event.dur, event.name
        if type(start) is not float or type(length) is not float or type(name) is not str:
            self.odd += 1
            return None
        possible = -FARTHEST < start < FARTHEST
        if possible and 0.0 <= length < LONGEST:
            return start, length, name
        self.odd += 1
        return (start, 0.0, name) if possible and -LONGEST < length < 0.0 else None

    def _add_host(self, event: Event, item: Item, kind: str, kept: bool) -> None:
        # The optimizer's annotation is one of the user's too, and its operators are counted by themselves.
        counted = kind in _OUTERMOST and event.cat != "user_annotation"
        if counted:
            self.operator_count += 1
            above = self._outer.get(item.thread, _NOTHING)
            if not kept and above.start <= item.start and item.end <= above.end:
                return
        if counted or kind in ("data", "optimizer"):
            self._outer[item.thread] = item
        if kind != "operator":
            self.spans.setdefault(kind, []).append(item)
        elif counted:
            self.operators.append(item)
        if kept and event.args is not None:
            self._keep(event.args, item)

    @staticmethod
    def _about(sort: str, known: dict[str, _About], name: str) -> _About:
        """What is to be known of a name, found out once."""
        kind: str = names.host_kind(name) if sort == "host" else "work"
        if sort == "call":
            kind = names.call_kind(name)
        elif sort == "frame":
            kind = "collector" if names.host_kind(name) == "collector" else "frame"
        kept = sort == "host" and (_STACKED.search(name) or _SHAPED.search(name)) is not None
        if len(known) < MOST_NAMES:
            known[name] = (name, kind, kept)
        return name, kind, kept

    def _thread(self, given: object) -> Thread:
        """Threads are numbers; some versions write them as strings, and streams as `stream 7`."""
        found = self._threads.get(given)
        if found is None:
            text = str(given).removeprefix("stream ")
            found = int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 20 else text
            self._threads[given] = found
        return found

    def _keep(self, args: Arguments, item: Item) -> None:
        """The stack of an operator that may wait or copy, the sizes of one that may use tensor cores."""
        if len(args.stack) > 2:
            self.stacks[item.start, item.thread] = bytes(args.stack)
        if len(args.shapes) > 2:
            self.shaped = True
            if _SHAPED.search(item.name):
                self.shapes[args.external] = (bytes(args.shapes), bytes(args.types))

    def _add_call(self, event: Event, item: Item, kind: str) -> None:
        if kind == "other" and item.end - item.start < SHORTEST_CALL:
            return
        args = event.args or EMPTY
        external = args.external if args.external is not None else args.external_2021
        call = Call(item.start, item.end, item.thread, args.correlation, item.name, external)
        self.calls.append(call)
        if kind != "other":
            self.driver.setdefault(kind, []).append(call)
        if args.correlation is not None:
            self.launches[args.correlation] = call

    def _add_work(self, event: Event, item: Item, kind: str) -> None:
        args = event.args or EMPTY
        device = self._thread(args.device if args.device is not None else event.pid)
        stream = self._thread(args.stream) if args.stream is not None else item.thread
        size = args.bytes if type(args.bytes) is int else 0
        self.work.append(Work(item.start, item.end, device, stream, args.correlation, kind, item.name, size))

    def _add_memory(self, event: Event) -> None:
        args = event.args or EMPTY
        if type(event.ts) is float and type(args.allocated) is int and type(args.reserved) is int:
            held = (event.ts, args.allocated, args.reserved)
            self.memory.setdefault((args.device_type, args.device_id), []).append(held)
