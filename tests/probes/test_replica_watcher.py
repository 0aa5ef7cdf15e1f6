"""Digests of replicas: numbered alike on ranks that are observed from their start and on those that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hosts import ByHand

from torchvet.probes.ranks import replicas
from torchvet.probes.ranks.replicas import ReplicaWatcher


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
