"""Buckets of DistributedDataParallel count as memory that training needs, and gradients are averaged as without us."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch.nn.parallel import DistributedDataParallel

from torchvet.probes.ranks.buckets import BucketWatcher


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def host() -> Iterator[ByHand]:
    host = ByHand()
    watcher = BucketWatcher(host)
    watcher.install()
    yield host
    watcher.remove()
    distributed: Any = torch.distributed
    assert not hasattr(distributed.Reducer._rebuild_buckets, "__wrapped__")


def trained(steps: int = 4, **options: Any) -> tuple[DistributedDataParallel, list[float]]:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 2)), **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def test_buckets_are_known_memory_as_long_as_the_model_lives(host: ByHand) -> None:
    model, losses = trained()
    size = 4 * sum(p.numel() for p in model.parameters())
    assert sum(bytes for kind, bytes in host.known.storages().values() if kind == "gradient buckets") == size
    assert len(losses) == 4
    del model
    gc.collect()
    assert host.known.storages() == {}


def test_gradients_that_are_views_of_buckets_stay_gradients(host: ByHand) -> None:
    model, _ = trained(gradient_as_bucket_view=True)
    host.known.add_root(model)
    kinds = {kind for kind, _ in host.known.storages().values()}
    assert kinds == {"parameters", "gradients"}


def test_losses_are_those_of_the_program_alone(host: ByHand) -> None:
    with_us = trained()[1]
    host.active = False
    assert with_us == trained()[1]


def test_a_reducer_that_never_makes_buckets_again_is_looked_at_a_few_times_only(
    host: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvet.probes.ranks import buckets

    entered: list[bool] = []
    enter = buckets._Made.enter
    monkeypatch.setattr(buckets._Made, "enter", lambda self: (entered.append(True), enter(self))[1])
    trained(8, find_unused_parameters=True)
    assert 0 < len(entered) <= 3
