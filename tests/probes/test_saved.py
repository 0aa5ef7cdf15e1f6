"""Saved tensors are read as torch before 2.10 shows them, too: without hooks being called, or modes being told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from torchvet.probes.base import gradients, graphs
from torchvet.probes.internals import private, saved
from torchvet.probes.internals.packing import PACKING, Packing


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, x + 1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2

    saved_tensors = property(lambda self: pytest.fail("the class was asked"))


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if torch had no `SavedTensor.data`, with hooks being heard."""
    monkeypatch.setattr(private, "SLOTS_SHOW_TENSORS", False)
    with ExitStack() as undo:
        PACKING.listen(undo)
        yield
    with ExitStack() as undo:
        PACKING.listen(undo)


def keys(out: torch.Tensor) -> set[int]:
    return set(graphs.walk([out.grad_fn], set(), set(), graphs.never).saved)


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "operand": lambda x: x * x,
    "result": lambda x: x.exp().tanh().sigmoid(),
    "list": lambda x: torch.index_put(x, (torch.tensor([0]),), torch.ones(4)).sum(),
    "layer": torch.nn.Linear(4, 4),
    "norm": torch.nn.BatchNorm1d(4),
    "custom": lambda x: Doubling.apply(x.exp()),
    "recurrent": lambda x: torch.nn.LSTM(4, 4)(x)[0],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_same_is_found_either_way(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = PROGRAMS[program](torch.randn(4, 4, requires_grad=True))
    newer = keys(out)
    assert newer
    monkeypatch.setattr(private, "SLOTS_SHOW_TENSORS", False)
    assert keys(out) == newer


def test_hooks_are_not_called_and_what_they_packed_is_skipped(older: None) -> None:
    x = torch.randn(4, requires_grad=True)
    before = x.exp()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: pytest.fail("the hook was called")):
        within = before.sin()
        assert keys(within) == keys(before)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: pytest.fail("the hook was called")):
            within = within.sin()
        within = within.sin()
    assert PACKING.skipped
    assert keys(within) == keys(before)
    after = within.exp()
    assert keys(after) == {*keys(before), after.untyped_storage()._cdata}


def test_checkpoints_are_not_computed_again(older: None) -> None:
    passes = []

    def block(x: torch.Tensor) -> torch.Tensor:
        passes.append(1)
        return x.exp().tanh()

    out = checkpoint(block, torch.randn(4, requires_grad=True), use_reentrant=False)
    keys(out)
    assert len(passes) == 1


def test_what_was_made_before_anybody_listened_may_be_under_hooks() -> None:
    with ExitStack() as undo:
        packing, out = Packing(), torch.randn(4, requires_grad=True).exp()
        packing.listen(undo)
        assert packing.covers(out.grad_fn)
        assert not packing.covers(out.exp().grad_fn)
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    hooks.__enter__()
    with ExitStack() as undo:
        packing.listen(undo)
        out = out.exp()
        hooks.__exit__()
        assert packing.covers(out.grad_fn)
        assert not packing.covers(out.exp().grad_fn)


def test_threads_have_numbers_of_their_own(older: None) -> None:
    found = []

    def work() -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: pytest.fail("the hook was called")):
            found.append(torch.randn(4, requires_grad=True).exp())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert keys(found[0]) == set()


def test_many_stretches_become_one() -> None:
    packing = Packing()
    packing._bounds().extend(range(1, 20_002))  # the last stretch is open
    packing._mine.depth = 1
    packing.off()
    bounds = packing._bounds()
    assert len(bounds) < 12_000
    assert len(bounds) % 2 == 0
    assert bounds[:2] == [1, 10_000]


def test_modes_of_the_program_hear_nothing(older: None) -> None:
    heard = []

    class Heard(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    out = torch.randn(4, requires_grad=True).exp().tanh()
    with Heard():
        assert keys(out)
    assert heard == []


def test_what_is_freed_or_changed_is_told_apart(older: None) -> None:
    x = torch.randn(4, requires_grad=True)
    freed, kept = x.exp(), x.exp()
    freed.sum().backward()
    assert saved.spoilt(freed.grad_fn, "freed")
    assert not saved.spoilt(kept.grad_fn, "freed")
    assert not saved.spoilt(kept.grad_fn, "changed")
    with torch.no_grad():
        kept.mul_(2)
    assert saved.spoilt(kept.grad_fn, "changed")
    assert keys(kept) == set()


def test_nothing_is_read_while_another_thread_trains() -> None:
    """Its pass may free what is read: that ends the process."""
    x = torch.ones(2, requires_grad=True)
    node = (x * x).exp().grad_fn
    went, over = threading.Event(), threading.Event()

    def train() -> None:
        gradients.backward_begins()
        went.set()
        over.wait(60)

    assert len([*saved.saved_tensors(node)]) == 1
    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    assert went.wait(60) and not [*saved.saved_tensors(node)]
    assert not saved.spoilt(node, "freed") and saved.unpack_hook_of(node, x) is None
    over.set()
    thread.join()
    assert len([*saved.saved_tensors(node)]) == 1, "it has ended"
