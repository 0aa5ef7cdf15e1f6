"""What crossed between host and device and what made the host wait, told to whoever listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch

Kind = Literal["to-device", "to-host", "between-devices", "sync"]


class Event(NamedTuple):
    """`waits` says whether the host would have waited for the device; `bytes` is what crossed, 0 for a mere wait."""

    kind: Kind
    what: str
    tensor: torch.Tensor | None
    bytes: int
    waits: bool
    pinned: bool


_listeners: list[Callable[[Event], None]] = []


class _Quiet(threading.local):
    depth = 0


_quiet = _Quiet()


def listen(listener: Callable[[Event], None]) -> Callable[[], None]:
    """Hear of events from now on; gives what ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def tell(event: Event) -> None:
    """Tell the listeners, unless the event is a part of one that has been told."""
    if not _quiet.depth:
        for listener in _listeners:
            listener(event)


def synchronised(what: str, tensor: torch.Tensor | None) -> None:
    """The host read a result of the device, or waited for it."""
    tell(Event("sync", what, tensor, 0, True, False))


@contextmanager
def as_one(what: str, tensor: torch.Tensor) -> Iterator[None]:
    """What happens within is one wait."""
    synchronised(what, tensor)
    _quiet.depth += 1
    try:
        yield
    finally:
        _quiet.depth -= 1
