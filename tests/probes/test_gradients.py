"""A thread reads the gradients that are its own: torch writes and frees others with the interpreter unlocked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from torchvet.probes.base import gradients
from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.objects.heap import tensor_children


@pytest.fixture(autouse=True)
def nobody_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TRAINING", "_OWNERS"):
        monkeypatch.setattr(gradients, name, {})


@contextmanager
def elsewhere(work: Callable[[], Any]) -> Iterator[None]:
    """A thread that has done this, and lives on meanwhile."""
    done, over = threading.Event(), threading.Event()

    def run() -> None:
        work()
        done.set()
        over.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert done.wait(30)
    yield
    over.set()
    thread.join()


def trained() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_one_thread_reads_all_gradients() -> None:
    model, _ = trained()
    gradients.backward_begins()
    assert gradient_of(model.weight) is model.weight.grad is not None
    assert gradient_of(model.weight * 2) is None


def test_another_threads_gradients_are_left_alone_from_its_first_backward_pass_on() -> None:
    mine, optimizer = trained()
    theirs, _ = trained()
    known = KnownMemory()
    for model in (mine, theirs):
        known.add_root(model)
    gradients.backward_begins()
    assert len(known.gradients()) == 4
    with elsewhere(gradients.backward_begins):
        assert known.gradients() == []
        gradients.stepped(optimizer)
        assert len(known.gradients()) == 2
        assert {kind for kind, _ in known.storages().values()} == {"parameters", "gradients"}
        assert gradient_of(theirs.weight) is None and tensor_children(theirs.weight) == []
        assert gradient_of(mine.weight) is mine.weight.grad
    assert len(known.gradients()) == 4, "the other thread has ended"


def test_what_another_thread_stepped_on_last_is_its_own() -> None:
    model, optimizer = trained()
    gradients.backward_begins()

    def train() -> None:
        gradients.backward_begins()
        gradients.stepped(optimizer)

    with elsewhere(train):
        assert gradient_of(model.weight) is None
        gradients.stepped(optimizer)
        assert gradient_of(model.weight) is model.weight.grad
        optimizer.add_param_group({"params": [(late := torch.ones(1, requires_grad=True))]})
        late.sum().backward()
        assert gradient_of(late) is None
        gradients.stepped(optimizer)
        assert gradient_of(late) is late.grad


def test_a_thread_that_python_did_not_start_is_none_that_trains() -> None:
    """Its stand-in lives on: autograd's own threads run passes within passes, which wait for them."""
    import _thread

    done = threading.Event()

    def passes() -> None:
        gradients.backward_begins()
        done.set()

    _thread.start_new_thread(passes, ())
    assert done.wait(60) and gradients.is_alone()
