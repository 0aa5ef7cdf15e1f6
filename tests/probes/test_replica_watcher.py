"""Digests of replicas: numbered alike on ranks that are observed from their start and on those that are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hosts import ByHand

from torchvet.probes.ranks import replicas
from torchvet.probes.ranks.digests import digests
from torchvet.probes.ranks.replicas import ReplicaWatcher
from torchvet.recording.records.ranks import Replicas


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether the process is in a group; the program's call that joins one joins none here."""
    state: list[bool] = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: state.append(True))
    monkeypatch.setattr(replicas, "has_joined", lambda: bool(state))
    yield state


def test_what_happens_before_the_first_step_counts_once_the_group_is_joined(joined: list[bool]) -> None:
    watcher = ReplicaWatcher(ByHand())
    watcher.install()
    try:
        assert "optimizer_ended" in watcher.ignored, "a process alone has no replicas"
        torch.distributed.init_process_group("gloo", world_size=2, rank=0)
        assert joined and not watcher.ignored, "not first at the end of its first step"
    finally:
        watcher.remove()


def test_joining_a_group_of_one_changes_nothing(joined: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "has_joined", lambda: False)
    watcher = ReplicaWatcher(ByHand())
    watcher.install()
    try:
        torch.distributed.init_process_group("gloo", world_size=1, rank=0)
        assert "optimizer_ended" in watcher.ignored
    finally:
        watcher.remove()


@pytest.fixture
def model() -> torch.nn.Linear:
    layer = torch.nn.Linear(4, 2)
    layer(torch.randn(3, 4)).sum().backward()
    return layer


def stepped(model: torch.nn.Linear, clip: Callable[[torch.nn.Linear], object]) -> Replicas:
    """What is written of an optimizer's first step, with a clip before it."""
    host = ByHand()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    host.known.add_optimizer(optimizer)
    watcher = ReplicaWatcher(host)
    watcher.install()
    try:
        watcher.heed()
        clip(model)
        watcher.optimizer_starts(optimizer)
        optimizer.step()
        watcher.optimizer_ended(optimizer)
    finally:
        watcher.remove()
    (found,) = (record for record in host.written if isinstance(record, Replicas))
    return found


@pytest.mark.parametrize(
    "clip",
    [
        lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 0.01),
        lambda m: torch.nn.utils.clip_grad_norm_(list(m.parameters()), max_norm=0.01),
        lambda m: torch.nn.utils.clip_grad.clip_grad_value_(m.parameters(), 0.001),
    ],
)
def test_gradients_are_known_from_before_they_were_clipped(
    model: torch.nn.Linear, clip: Callable[[torch.nn.Linear], object]
) -> None:
    before = digests([p.grad for p in model.parameters() if p.grad is not None])
    found = stepped(model, clip)
    assert [one.unclipped for one in found.parameters] == before
    assert all(one.gradient != one.unclipped for one in found.parameters)
    assert found.clipped is not None and found.clipped.path == __file__


def test_gradients_that_nobody_clipped_have_no_earlier_state(model: torch.nn.Linear) -> None:
    found = stepped(model, lambda m: None)
    assert found.clipped is None and all(one.unclipped is None for one in found.parameters)


@pytest.mark.parametrize("of_module", [True, False], ids=["its own", "copies"])
def test_an_optimizer_that_steps_on_copies_is_told(model: torch.nn.Linear, of_module: bool) -> None:
    host = ByHand()
    flat = torch.ones(10, requires_grad=True)
    flat.grad = torch.ones(10)
    optimizer = torch.optim.SGD(model.parameters() if of_module else [flat], 0.1)
    host.known.add_optimizer(optimizer)
    host.known.add_root(model)
    watcher = ReplicaWatcher(host)
    watcher.install()
    try:
        watcher.heed()
        watcher.optimizer_starts(optimizer)
        optimizer.step()
        watcher.optimizer_ended(optimizer)
    finally:
        watcher.remove()
    (found,) = (record for record in host.written if isinstance(record, Replicas))
    assert all(one.copied is not of_module for one in found.parameters)
