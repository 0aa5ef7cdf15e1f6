"""Many threads that run one function are one name: each keeps the same variables."""

from __future__ import annotations

import queue
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap
from torchvet.recording.records.base import Holding


class Prefetcher(threading.Thread):
    """Fills a queue that nobody may empty."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.filled = threading.Event()
        self._stop_event = stop
        self._buffer: queue.Queue[torch.Tensor] = queue.Queue(maxsize=3)

    def run(self) -> None:
        """Put until the queue is full, then wait."""
        for _ in range(3):
            self._buffer.put(torch.zeros(100))
        self.filled.set()
        self._stop_event.wait()


def work(own: list[torch.Tensor], ready: threading.Event, stop: threading.Event) -> None:
    """A thread's function that keeps a list."""
    own.append(torch.zeros(1000))
    ready.set()
    stop.wait()


@contextmanager
def prefetching(count: int) -> Iterator[None]:
    """So many threads that wait, and one of another function."""
    stop, ready = threading.Event(), threading.Event()
    threads: list[threading.Thread] = [Prefetcher(stop) for _ in range(count)]
    threads.append(threading.Thread(target=work, args=([], ready, stop)))
    for thread in threads:
        thread.start()
    for thread in threads:
        (thread.filled if isinstance(thread, Prefetcher) else ready).wait()
    del thread
    threads.clear()
    try:
        yield
    finally:
        stop.set()


def held() -> list[Holding]:
    walk = heap.HeapWalk(20.0)
    try:
        walk.add_roots(root for root in heap.frame_roots([], []) if root.thread is not None)
        walk.run()
        tree = HoldingTree(walk)
        for tensor in walk.tensors:
            tree.add(id(tensor), direct=tensor.untyped_storage().nbytes(), tensors=1)
        return tree.holdings({})
    finally:
        walk.close()


def test_threads_that_wait_are_told_apart_while_they_are_few() -> None:
    with prefetching(2):
        found = [h for h in held() if h.path[-1] == "._buffer"]
    assert len(found) == 2 and all(h.direct == 1200 and "(thread " in h.scope for h in found)


def test_many_threads_of_one_function_are_one_name() -> None:
    with prefetching(20):
        (crew,) = [h for h in held() if h.kind == "thread"]
        others = [h for h in held() if h.kind != "thread"]
    assert (crew.name, crew.scope) == ("<threads in Prefetcher.run>", __name__)
    assert (crew.direct, crew.tensors, crew.length) == (20 * 1200, 60, 20)
    assert crew.parts == ["self._buffer"]
    assert crew.place is not None and crew.place.function == "Prefetcher.run"
    assert crew.place.line == Prefetcher.run.__code__.co_firstlineno + 5, "the line that they wait in"
    assert {h.name for h in others if h.direct} == {"own", "own[0]"}, "that is another function's"


@pytest.fixture(autouse=True)
def the_programs_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the test runner are no part of the program."""
    running = heap._stacks

    def stacks() -> list[tuple[int, list[types.FrameType]]]:
        return [(i, stack) for i, stack in running() if any(f.f_code.co_filename == __file__ for f in stack)]

    monkeypatch.setattr(heap, "_stacks", stacks)
