"""A change that is asked for is made, once for each object that it is for, and the program is otherwise as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from torchvet.probes.training.attempts import Attempts
from torchvet.recording.records.attempt import Attempt

DATA = TensorDataset(torch.arange(12.0).reshape(12, 1))


@contextmanager
def attempted(change: str) -> Iterator[tuple[Attempts, Attempt]]:
    host: Any = SimpleNamespace(options=SimpleNamespace(attempt=change), active=True)
    watcher = Attempts(host)
    watcher.install()
    (found,) = watcher.totals(0)
    assert isinstance(found, Attempt)
    try:
        yield watcher, found
    finally:
        watcher.remove()


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


def test_loaders_get_workers_where_they_have_none() -> None:
    with attempted("workers=2") as (_, found):
        assert (DataLoader(DATA).num_workers, DataLoader(DATA).persistent_workers) == (2, True)
        assert DataLoader(DATA, num_workers=1).num_workers == 1
    assert found.applied == 2 and found.place is not None and found.place.path == __file__
    assert DataLoader(DATA).num_workers == 0


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_iterable_datasets_get_none_as_each_worker_would_read_it_all() -> None:
    with attempted("workers=2") as (_, found):
        assert list(DataLoader(_Stream(), batch_size=None)) == [0, 1, 2, 3]
    assert not found.applied


def test_batches_are_twice_as_large() -> None:
    with attempted("batch=2") as (_, found):
        assert [len(b[0]) for b in DataLoader(DATA, batch_size=3)] == [6, 6]
    assert found.applied == 1


@pytest.mark.parametrize("change", ["fused", "foreach"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_optimizers_take_the_switch_unless_the_program_has_chosen(change: str, kind: Any) -> None:
    weights = [nn.Parameter(torch.ones(2))]
    with attempted(change) as (_, found):
        assert kind(weights, lr=0.1).defaults[change] is True
        assert kind(weights, 0.1, foreach=True).defaults["foreach"] is True
        assert not kind(weights, lr=0.1, differentiable=True).defaults[change]
    assert found.applied == 1


def test_what_the_program_gets_wrong_is_told_by_torch() -> None:
    with attempted("fused"), pytest.raises(TypeError, match="nonsense"):
        torch.optim.SGD([nn.Parameter(torch.ones(2))], nonsense=1)


def test_anomaly_detection_stays_off() -> None:
    with attempted("no-anomaly") as (_, found):
        with torch.autograd.set_detect_anomaly(True):
            assert not torch.is_anomaly_enabled()
        assert found.applied == 1
    with torch.autograd.set_detect_anomaly(True):
        assert torch.is_anomaly_enabled()


def test_threads_are_those_asked_for_whatever_the_program_says() -> None:
    before = torch.get_num_threads()
    try:
        with attempted("threads=2") as (_, found):
            torch.set_num_threads(1)
            assert torch.get_num_threads() == 2 and found.applied
    finally:
        torch.set_num_threads(before)


def test_models_of_images_are_turned_once_and_given_their_images_so() -> None:
    seen: list[bool] = []
    net = model()
    net[0].register_forward_hook(lambda m, a, o: seen.append(a[0].is_contiguous(memory_format=torch.channels_last)))
    with attempted("channels-last") as (_, found):
        for _step in range(3):
            net(torch.randn(2, 3, 8, 8))
        nn.Linear(2, 2)(torch.randn(3, 2))
    # A lazy layer has no shape before the first call.
    assert seen[1:] == [True, True] and found.applied == 1
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_steps_are_timed_and_the_first_losses_kept() -> None:
    with attempted("none") as (watcher, found):
        for tick in range(1, 31):
            watcher.backward_starts(torch.tensor(float(tick)), is_grad=False)
            watcher.boundary(tick, "evaluation" if tick == 9 else "training")
    assert len(found.seconds) == 28 and found.losses == [float(n) for n in range(1, 17)] + found.losses[16:]
    assert "backward_starts" in watcher.ignored


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def test_models_compute_in_bfloat16_and_give_float32() -> None:
    net, inner = small(), []
    net[0].register_forward_hook(lambda module, args, output: inner.append(output.dtype))
    with attempted("bfloat16") as (_, found):
        assert net(torch.randn(4, 8)).dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
        with torch.no_grad():
            net(torch.randn(4, 8))
        with torch.autocast("cpu", torch.float16):
            net(torch.randn(4, 8))
        small().double()(torch.randn(4, 8).double())
    assert inner == [torch.bfloat16, torch.float32, torch.float16]
    assert found.applied == 1 and found.place is not None


def test_a_model_that_raises_leaves_autocast_as_it_was() -> None:
    with attempted("bfloat16"):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            small()(torch.randn(4, 7))
        assert not torch.is_autocast_enabled("cpu")


def test_models_that_are_trained_are_compiled_once_and_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(self))
    net, loss = small(), nn.MSELoss()
    with attempted("compile") as (_, found):
        with torch.no_grad():
            net(torch.randn(4, 8))
        for _ in range(2):
            loss(net(torch.randn(4, 8)), torch.zeros(4, 2))
    assert compiled == [net] and found.applied == 1
