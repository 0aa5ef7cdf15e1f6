"""Gathers a trace's events into columns: what ran on devices, what the host called and did, by thread."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torchvet.readers.kineto_events import EMPTY, Arguments, Event
from torchvet.traces import names

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


class Memory(NamedTuple):
    """What the allocator held after an allocation or a release, in bytes."""

    time: float
    allocated: int
    reserved: int


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
        self.negative = 0
        self.odd = 0
        """Events with times that are none."""
        self._kinds: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._threads: dict[object, Thread] = {}
        self._stacked: dict[str, bool] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Sort a batch of events into the columns."""
        device, runtime, host = names.DEVICE, names.RUNTIME, names.HOST
        for event in events:
            if event.ph != "X":
                if event.name == "[memory]":
                    self._add_memory(event)
                continue
            start, length, name = event.ts, event.dur, event.name
            if type(start) is not float or type(length) is not float or type(name) is not str:
                self.odd += 1
                continue
            if length < 0:
                self.negative += 1
                length = 0.0
            cat = event.cat or event.pid
            if cat in host:
                self._add_host(event, start, start + length, name)
            elif cat in runtime:
                self._add_call(event, start, start + length, name)
            elif cat == "python_function":
                if length >= SHORTEST_FRAME:
                    self._add_frame(event, start, start + length, name)
            elif cat in device:
                self._add_work(event, start, start + length, name, device[cat])
            elif cat == "overhead":
                self.overhead.append((start, start + length))

    def _thread(self, given: object) -> Thread:
        """Threads are numbers; some versions write them as strings, and streams as `stream 7`."""
        found = self._threads.get(given)
        if found is None:
            text = str(given).removeprefix("stream ")
            found = int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 20 else text
            self._threads[given] = found
        return found

    def _add_host(self, event: Event, start: float, end: float, name: str) -> None:
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = names.host_kind(name)
            self._names[name] = name
            self._stacked[name] = _STACKED.search(name) is not None or _SHAPED.search(name) is not None
        name = self._names[name]
        item = Item(start, end, self._thread(event.tid), name)
        if kind != "operator":
            self.spans.setdefault(kind, []).append(item)
        elif event.cat != "user_annotation":
            self.operators.append(item)
        if self._stacked[name] and event.args is not None:
            self._keep(event.args, item)

    def _keep(self, args: Arguments, item: Item) -> None:
        """The stack of an operator that may wait or copy, the sizes of one that may use tensor cores."""
        if len(args.stack) > 2:
            self.stacks[item.start, item.thread] = bytes(args.stack)
        self.shaped = self.shaped or len(args.shapes) > 2
        if args.shapes and _SHAPED.search(item.name):
            self.shapes[args.external] = (bytes(args.shapes), bytes(args.types))

    def _add_call(self, event: Event, start: float, end: float, name: str) -> None:
        args = event.args or EMPTY
        external = args.external if args.external is not None else args.external_2021
        kind = self._calls.get(name)
        if kind is None:
            kind = self._calls[name] = names.call_kind(name)
        call = Call(start, end, self._thread(event.tid), args.correlation, self._names.setdefault(name, name), external)
        self.calls.append(call)
        if kind != "other":
            self.driver.setdefault(kind, []).append(call)
        if args.correlation is not None:
            self.launches[args.correlation] = call

    def _add_frame(self, event: Event, start: float, end: float, name: str) -> None:
        if name == "Python GC" or name == "<built-in function collect>":
            self.spans.setdefault("collector", []).append(Item(start, end, self._thread(event.tid), name))
        else:
            name = self._names.setdefault(name, name)
            self.frames.append(Item(start, end, self._thread(event.tid), name))

    def _add_work(self, event: Event, start: float, end: float, name: str, kind: str) -> None:
        args = event.args or EMPTY
        device = self._thread(args.device if args.device is not None else event.pid)
        stream = self._thread(args.stream if args.stream is not None else event.tid)
        name = self._names.setdefault(name, name)
        size = args.bytes if type(args.bytes) is int else 0
        self.work.append(Work(start, end, device, stream, args.correlation, kind, name, size))

    def _add_memory(self, event: Event) -> None:
        args = event.args or EMPTY
        if type(event.ts) is float and type(args.allocated) is int and type(args.reserved) is int:
            held = Memory(event.ts, args.allocated, args.reserved)
            self.memory.setdefault((args.device_type, args.device_id), []).append(held)


@contextmanager
def collector_off() -> Iterator[None]:
    """Python's cyclic collector switched off: among millions of new objects it finds nothing and takes most time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
