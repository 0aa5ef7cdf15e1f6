"""Streams and events in order: every operator is over when it returns, so there is nothing to wait for."""

from __future__ import annotations

import time
from typing import Any

from torchvet.simulate import devices, journal


class Stream:
    """A stream. Waiting is told to the journal and takes no time."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device_index = devices.index_of(device)
        self.device = devices.outer(self.device_index)
        self.priority = priority
        self.cuda_stream = id(self)

    def synchronize(self) -> None:
        """The host waits."""
        journal.synchronised("Stream.synchronize", None)

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
        return self

    def __exit__(self, *error: object) -> None:
        """The stream that was current is so again: there is only one."""


class Event:
    """An event; its times are the host's, which is the only clock there is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.at = 0.0

    def record(self, stream: Any = None) -> None:
        """Now."""
        self.at = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the host's time."""
        return (end_event.at - self.at) * 1e3

    def synchronize(self) -> None:
        """The host waits."""
        journal.synchronised("Event.synchronize", None)

    def query(self) -> bool:
        """Everything is over."""
        return True

    def wait(self, stream: Any = None) -> None:
        """The device waits, not the host."""


_default: dict[int, Stream] = {}


def current_stream(device: Any = None) -> Stream:
    """The one that each device has."""
    index = devices.index_of(device)
    if index not in _default:
        _default[index] = Stream(index)
    return _default[index]


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """There is only one."""


class StreamContext:
    """`with torch.cuda.stream(s):`."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        """There is only one."""

    def __exit__(self, *error: object) -> None:
        """There is only one."""


stream = StreamContext


def synchronize(device: Any = None) -> None:
    """The host waits for the device."""
    devices.index_of(device)
    journal.synchronised("synchronize", None)


def is_current_stream_capturing() -> bool:
    """CUDA graphs are not simulated."""
    return False


def ipc_collect() -> None:
    """Nothing is shared with other processes."""


ANSWERS = (
    "Stream", "Event", "current_stream", "default_stream", "set_stream", "StreamContext", "stream", "synchronize",
    "ipc_collect", "is_current_stream_capturing",
)  # fmt: skip
