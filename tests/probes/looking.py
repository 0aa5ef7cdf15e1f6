"""What the tests of the probes share: a walk from a few names, censuses, and storages as they are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from torchvet.probes.base import graphs
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.memory.census import CensusTaker
from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap
from torchvet.probes.objects.heap import HeapWalk, Root
from torchvet.recording.records.base import Census, Holding

SCOPE = "__main__"


@contextmanager
def walked(budget: float = 10.0, **roots: Any) -> Iterator[HeapWalk]:
    """A finished walk from these global names."""
    walk = HeapWalk(budget)
    walk.add_roots(
        Root(name=name, kind="global", scope=SCOPE, path=__file__, line=None, value=value)
        for name, value in roots.items()
    )
    walk.run()
    try:
        yield walk
    finally:
        walk.close()


def names_of(wanted: torch.Tensor, **roots: Any) -> list[str]:
    """The names under which a tensor is found, at most one, since a walk sees every object once."""
    with walked(**roots) as walk:
        tree = HoldingTree(walk)
        found = [tree.name(id(t)) for t in walk.tensors if t is wanted]
        tree.close()
    return found


def name_of(wanted: torch.Tensor, **roots: Any) -> str:
    """The name of a tensor that is found once."""
    (name,) = names_of(wanted, **roots)
    return name


def vias_of(wanted: torch.Tensor, **roots: Any) -> set[str]:
    """The special hops on the way to a tensor."""
    with walked(**roots) as walk:
        tree = HoldingTree(walk)
        tree.add(id(wanted), direct=1)
        found = {via for h in tree.holdings({}) for via in h.via}
        tree.close()
    return found


def key_of(tensor: torch.Tensor) -> int:
    """The key of a strided tensor's storage."""
    (storage,) = graphs.storages_of(tensor)
    return int(storage._cdata)


def saved_bytes(output: torch.Tensor, *without: torch.Tensor) -> int:
    """Bytes that the graph of `output` keeps for backward, not counting the storages of other tensors."""
    return sum(s.nbytes() for s in reach_of(output, *without).saved.values())


def reach_of(output: torch.Tensor, *without: torch.Tensor) -> graphs.Reach:
    """All that the graph of `output` reaches, not counting the storages of other tensors."""
    claimed = {s._cdata for t in without for s in graphs.storages_of(t)}
    return graphs.walk([output.grad_fn], set(), claimed, lambda: False)


def only_names_of(monkeypatch: pytest.MonkeyPatch, file: str, module: str) -> None:
    """The test runner's own frames and modules are no part of the program: they are large, and none of ours."""
    running = heap.frame_roots
    modules = heap.module_roots

    def frame_roots(*args: Any) -> Iterator[Root]:
        return (r for r in running(*args) if r.path == file)

    def module_roots(owners: Any) -> Iterator[Root]:
        return (r for r in modules(owners) if r.scope == module or r.scope.startswith("torch.optim"))

    monkeypatch.setattr(heap, "frame_roots", frame_roots)
    monkeypatch.setattr(heap, "module_roots", module_roots)


def look(taker: CensusTaker, ledger: Ledger, tick: int) -> Census:
    """A census of a training step."""
    return taker.take(tick, "training", ledger)


def by_name(census: Census) -> dict[str, Holding]:
    """What a census found, by name."""
    return {h.name: h for h in census.holdings}
