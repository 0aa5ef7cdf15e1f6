"""Which loops run over loaders, and how many of their batches stay alive."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.training.loaders import LoaderProbe
from torchvet.recording.records.training import LoaderMemory, LoopBound

BATCH = 4 * 8 * 4


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(40, 8)), batch_size=4, **options)


def observed(ledger: Ledger | None = None) -> LoaderProbe:
    """The probe, told of events by hand; `ledger` is at work."""
    host: Any = ByHand()
    host.ledger, host.sampling = ledger, ledger is not None
    return LoaderProbe(host)


def run(probe: LoaderProbe, iterator: Any) -> Iterator[Any]:
    """The loop, reported as the observer would."""
    while True:
        probe.batch_asked(iterator, sys._getframe(1))
        try:
            batch = next(iterator)
        except StopIteration:
            return
        probe.batch_got(iterator, batch)
        yield batch
        del batch


def memory(probe: LoaderProbe) -> LoaderMemory:
    (record,) = [r for r in probe.totals(9) if isinstance(r, LoaderMemory)]
    return record


def test_batches_that_are_let_go_are_not_alive() -> None:
    probe = observed()
    for batch in run(probe, iter(loader())):
        assert batch[0].numel() == 32
    del batch
    record = memory(probe)
    assert (record.made, record.alive, record.bytes, record.batch_bytes, record.length) == (10, 0, 0, BATCH, 10)


def test_batches_that_are_kept_are_counted() -> None:
    probe = observed()
    kept = list(run(probe, iter(loader())))
    record = memory(probe)
    assert (record.made, record.alive, record.bytes) == (10, 10, 10 * BATCH)
    del kept[3:]
    assert memory(probe).alive == 3


def test_the_bound_of_a_loop_is_its_loaders_length() -> None:
    probe = observed()
    for _ in run(probe, iter(loader())):
        pass
    (bound,) = [r for r in probe.totals(1) if isinstance(r, LoopBound)]
    assert bound.length == 10 and bound.place.path == __file__


class Stream(IterableDataset[torch.Tensor]):
    """Without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(8):
            yield torch.ones(8)


def test_a_stream_has_no_bound() -> None:
    probe = observed()
    for _ in run(probe, iter(DataLoader(Stream(), batch_size=4))):
        pass
    assert memory(probe).length is None
    assert not [r for r in probe.totals(1) if isinstance(r, LoopBound)]


class Endless(Sampler[int]):
    """A sampler that has no length and says so its own way."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))

    def __len__(self) -> int:
        raise NotImplementedError("endless")


def test_a_sampler_that_raises_for_its_length_has_no_bound() -> None:
    probe = observed()
    data = TensorDataset(torch.ones(8, 8))
    for _ in run(probe, iter(DataLoader(data, batch_size=4, sampler=Endless()))):
        pass
    assert memory(probe).length is None


def test_a_new_epoch_starts_anew_in_the_same_place() -> None:
    probe = observed()
    kept = []
    for _ in range(3):
        kept.append(next(run(probe, iter(loader()))))
    assert len([r for r in probe.totals(1) if isinstance(r, LoaderMemory)]) == 1


def test_batches_are_inputs_of_an_open_window() -> None:
    ledger = Ledger()
    probe = observed(ledger)
    assert ledger.enter()
    try:
        ledger.phase = "data"
        for batch in run(probe, iter(loader())):
            assert ledger.live[batch[0].untyped_storage()._cdata].phase == "data"
            break
    finally:
        ledger.leave()


def test_no_more_batches_than_a_bound_are_followed() -> None:
    probe = observed()
    one = iter(loader())
    probe.batch_asked(one, sys._getframe())
    batch = next(one)
    for _ in range(2000):
        probe.batch_got(one, batch)
    record = memory(probe)
    assert record.made == 2000 and record.alive <= 512


class Custom:
    """A batch that is an object."""

    def __init__(self) -> None:
        self.images = torch.ones(2)
        self.more = {"a": [torch.ones(3)]}


ENDLESS: list[Any] = [torch.ones(2)]
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(("batch", "size"), [
    (torch.ones(5), 20),
    ((torch.ones(2), [torch.ones(2), {"a": torch.ones(1)}], "text", 3), 20),
    (Custom(), 20),
    (ENDLESS, 8),
    (torch.Size([1, 2]), 0),
    ("text", 0),
    (None, 0),
], ids=["tensor", "nested", "object", "endless", "size", "text", "none"])  # fmt: skip
def test_the_bytes_of_a_batch_are_counted_in_whatever_shape_it_comes(batch: Any, size: int) -> None:
    probe = observed()
    one = iter(loader())
    probe.batch_asked(one, sys._getframe())
    probe.batch_got(one, batch)
    assert memory(probe).batch_bytes == size
