"""Breakers keep the freeing of a long graph flat, and neither prolong its life nor pile up."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from torchvet.probes.base import graphs
from torchvet.probes.internals import graph_teardown

LENGTH = 5000


def chain(length: int = LENGTH) -> tuple[torch.Tensor, weakref.ref[torch.UntypedStorage]]:
    """A chain whose lowest node saved a tensor, and a weak reference to what it saved."""
    leaf = torch.ones(10, requires_grad=True)
    out = torch.exp(leaf)
    saved = weakref.ref(out.untyped_storage())
    for _ in range(length):
        out = out + 1
    return out, saved


def breakers_of(out: torch.Tensor) -> int:
    nodes, found = [out.grad_fn], 0
    while nodes:
        node = nodes.pop()
        assert node is not None
        found += graph_teardown._KEY in node.metadata
        nodes.extend(n for n, _ in node.next_functions if n is not None)
    return found


def test_the_graph_goes_when_its_last_name_goes() -> None:
    gc.disable()
    try:
        out, saved = chain()
        graphs.walk([out.grad_fn], set(), set(), graphs.never)
        assert saved() is not None
        del out
        assert saved() is None, "at once, without the collector"
    finally:
        gc.enable()


def test_a_part_that_somebody_else_needs_stays() -> None:
    middle, saved = chain()
    top = middle
    for _ in range(LENGTH):
        top = top + 1
    graphs.walk([top.grad_fn], set(), set(), graphs.never)
    del top
    assert saved() is not None
    middle.sum().backward()
    del middle
    assert saved() is None


def test_backward_frees_what_was_saved_although_the_nodes_stay() -> None:
    out, saved = chain()
    graphs.walk([out.grad_fn], set(), set(), graphs.never)
    out.sum().backward()
    assert saved() is None and out.grad_fn is not None


def test_every_look_chooses_the_same_nodes() -> None:
    out, _ = chain()
    graphs.walk([out.grad_fn], set(), set(), graphs.never)
    once = breakers_of(out)
    assert LENGTH / 256 < once < LENGTH / 16
    for _ in range(5):
        graphs.sequences_below([out.grad_fn])
        top = out * 2
        graphs.walk([top.grad_fn], set(), set(), graphs.never)
        del top
    assert breakers_of(out) == once


def test_nodes_a_fixed_distance_apart_cannot_avoid_them() -> None:
    """One node a step of a chain of which each step makes 256: by plain numbers none or all would be chosen."""
    out = torch.ones(1, requires_grad=True)
    for _ in range(2000):
        out = out + 1
        for _ in range(255):
            _ = out * 2
    found = breakers_of(out)
    graphs.walk([out.grad_fn], set(), set(), graphs.never)
    assert found == 0 and 2000 / 256 < breakers_of(out) < 2000 / 16


def test_gradients_through_a_graph_that_was_looked_at_are_the_same() -> None:
    def gradient(look: bool) -> torch.Tensor:
        leaf = torch.linspace(0, 1, 10, requires_grad=True)
        out = leaf
        for n in range(300):
            out = out.sin() + n / 300
        if look:
            graphs.walk([out.grad_fn], set(), set(), graphs.never)
        (found,) = torch.autograd.grad(out.sum(), leaf)
        return found

    assert torch.equal(gradient(True), gradient(False))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_mode_keeps_its_own_metadata() -> None:
    with torch.autograd.detect_anomaly(check_nan=False):
        out = torch.ones(1, requires_grad=True)
        for _ in range(200):
            out = out * 2
        graphs.walk([out.grad_fn], set(), set(), graphs.never)
        assert out.grad_fn is not None and "traceback_" in out.grad_fn.metadata
        out.backward()
