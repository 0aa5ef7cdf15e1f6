"""Streams and events in order: every operator is over when it returns, so there is nothing to wait for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.refusals import refusal

_POOL, _PRIORITIES = 32, 4
"""`kStreamsPerPool` and `max_compile_time_stream_priorities` of torch's `c10/cuda/CUDAStream.cpp`."""
_made: Counter[tuple[int, int]] = Counter()


def _from_pool(device: int, priority: int) -> int:
    """A stream's number: so many are made for a device and a priority, and are handed out in turn."""
    level = min(max(-priority, 0), _PRIORITIES - 1)
    _made[device, level] += 1
    return 1 + level * _POOL + (_made[device, level] - 1) % _POOL


class _Current(threading.local):
    """Each thread has a current stream on each device."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_current = _Current()
_default: dict[int, Stream] = {}


class Stream:
    """A stream. Waiting takes no time. Stream 0 is the default one."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        index = kwargs.get("device_index")
        self.device_index = devices.index_of(device) if index is None else int(index)
        self.device = devices.outer(self.device_index)
        self.device_type = 1
        self.priority = priority
        self.stream_id = int(kwargs["stream_id"]) if "stream_id" in kwargs else _from_pool(self.device_index, priority)
        self.cuda_stream = self._as_parameter_ = self.native_handle = self.stream_id

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Least and greatest, as CUDA numbers them."""
        return 0, -5

    def synchronize(self) -> None:
        """The host would wait."""

    def wait_stream(self, stream: Any) -> None:
        """The device waits, not the host."""

    def wait_event(self, event: Any) -> None:
        """The device waits, not the host."""

    def record_event(self, event: Any = None) -> Any:
        """An event that is over."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Everything is over."""
        return True

    def is_capturing(self) -> bool:
        """CUDA graphs are not simulated."""
        return False

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.stream_id, self.device) == (other.stream_id, other.device)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library has made."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        super().__init__(device, stream_id=stream_ptr)


class Event:
    """An event; its times are the host's, which is the only clock there is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = 0.0
        self.device = devices.outer(devices.current.index)
        self.cuda_event = self.event_id = 0

    def record(self, stream: Any = None) -> None:
        """Now."""
        self.at = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the host's time."""
        return (end_event.at - self.at) * 1e3

    def synchronize(self) -> None:
        """The host would wait."""

    def query(self) -> bool:
        """Everything is over."""
        return True

    def wait(self, stream: Any = None) -> None:
        """The device waits, not the host."""

    def ipc_handle(self) -> bytes:
        """Refused: it is for other processes on a real device."""
        raise refusal("CUDA IPC handles", "They share a real device between processes.")


def default_stream(device: Any = None) -> Stream:
    """The one that each device has from the start."""
    index = devices.index_of(device)
    # One object for each device: programs compare streams.
    if index not in _default:
        _default[index] = Stream(index, stream_id=0)
    return _default[index]


def current_stream(device: Any = None) -> Stream:
    """The thread's on a device."""
    index = devices.index_of(device)
    return _current.streams.get(index) or default_stream(index)


def _enter(stream: Stream) -> None:
    """What is allocated on its device from now on is the stream's."""
    # Twice: the object for the program, the number for the allocator, which asks at every allocation.
    _current.streams[stream.device_index] = stream
    devices.current.streams[stream.device_index] = stream.stream_id


def set_stream(stream: Any) -> None:
    """For the thread, on the stream's device, which becomes the current one."""
    if stream is not None:
        _enter(stream)
        devices.current.index = stream.device_index


class StreamContext:
    """`with torch.cuda.stream(s):`, also around nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.before: list[tuple[int, Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            # A list, since one context may be entered again within itself.
            self.before.append((devices.current.index, current_stream(self.stream.device_index)))
            set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.before:
            devices.current.index, before = self.before.pop()
            _enter(before)


stream = StreamContext


def synchronize(device: Any = None) -> None:
    """The host would wait for the device."""
    devices.index_of(device)


def is_current_stream_capturing() -> bool:
    """CUDA graphs are not simulated."""
    return False


def ipc_collect() -> None:
    """Nothing is shared with other processes."""


def install() -> None:
    """`torch.Stream("cuda")` and `torch.Event("cuda")` are these too: there is no other device with streams."""
    torch.Stream, torch.Event = Stream, Event  # type: ignore[misc, assignment]


ANSWERS = (
    "Stream", "Event", "ExternalStream", "current_stream", "default_stream", "set_stream", "StreamContext", "stream",
    "synchronize", "ipc_collect", "is_current_stream_capturing",
)  # fmt: skip
