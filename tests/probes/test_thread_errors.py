"""Threads that end in an exception while the program goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from torchvet.probes.crash.thread_errors import ThreadErrors
from torchvet.recording.records.base import Record
from torchvet.recording.records.verify import ThreadFailed


class _Host:
    active = True
    step = 3
    options: Any = SimpleNamespace(losses=True)

    def __init__(self) -> None:
        self.written: list[Record] = []

    def write(self, record: Record) -> None:
        self.written.append(record)


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[type]]:
    """What the program's own hook, that is set before, is told of."""
    kinds: list[type] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: kinds.append(args.exc_type))
    yield kinds


def run(error: BaseException) -> None:
    def fail() -> None:
        raise error

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


def test_a_failed_thread_is_written_down_at_the_next_boundary(heard: list[type]) -> None:
    before, host = threading.excepthook, _Host()
    watcher = ThreadErrors(host)  # type: ignore[arg-type]
    watcher.install()
    run(AttributeError("'tuple' object has no attribute 'detach'"))
    run(_Mute())
    run(SystemExit())
    assert not host.written
    watcher.boundary(1, "training")
    assert host.written == [
        ThreadFailed(kind="AttributeError", message="'tuple' object has no attribute 'detach'"),
        ThreadFailed(kind="_Mute", message=""),
    ]
    host.active = False
    run(KeyError())
    watcher.finish("finished", None)
    assert len(host.written) == 2
    watcher.remove()
    assert threading.excepthook is before
    assert heard == [AttributeError, _Mute, SystemExit, KeyError]


def test_only_runs_that_are_compared_have_it() -> None:
    assert ThreadErrors.wanted(SimpleNamespace(losses=True)) and not ThreadErrors.wanted(SimpleNamespace(losses=False))
