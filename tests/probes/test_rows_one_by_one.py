"""Batches that are read row by row from tensors in memory are timed, both ways, after the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset, TensorDataset

from torchvet.probes.time import rows_one_by_one
from torchvet.probes.time.rows_one_by_one import RowsOneByOneTimer
from torchvet.recording import read
from torchvet.recording.records.timing import RowsOneByOne

ROWS = TensorDataset(torch.ones(200, 3), torch.ones(200, dtype=torch.int64))


class Doubled(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * one for one in super().__getitem__(index))


def seen(loader: DataLoader[Any], how: str = "finished") -> list[RowsOneByOne]:
    """What is written of a loop over a loader."""
    written: list[Any] = []
    host: Any = SimpleNamespace(write=written.append)
    probe = RowsOneByOneTimer(host)
    state = torch.get_rng_state()
    iterator = iter(loader)
    torch.set_rng_state(state)
    for _ in range(2):
        probe.batch_asked(iterator, sys._getframe(0))
    probe.last_look(how, None)
    assert torch.equal(state, torch.get_rng_state())
    return written


def test_a_loop_over_tensors_is_timed_once() -> None:
    (record,) = seen(DataLoader(ROWS, batch_size=64, shuffle=True))
    assert (record.rows, record.tensors, record.place.path) == (64, 2, __file__)
    assert 0 < record.at_once < record.each


def test_the_line_that_makes_the_loader(tmp_path: Path) -> None:
    """In a program: only there its lines are the user's."""
    program = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(3, 1)
rule = torch.optim.SGD(model.parameters(), lr=0.01)
def made(rows):
    return DataLoader(rows, batch_size=64, shuffle=True)
loader = made(TensorDataset(torch.ones(2000, 3)))
for (x,) in loader:
    rule.zero_grad()
    model(x).mean().backward()
    rule.step()
"""
    forked(program, tmp_path)
    (record,) = read(tmp_path / RECORDING).ranks[0].all(RowsOneByOne)
    assert record.made is not None and (record.place.line, record.made.line) == (9, 7)
    assert record.alone
    # The same line makes a loader of another dataset.
    forked(program.replace("for (x,)", "tests = made([torch.ones(3)] * 80)\nfor (x,)"), tmp_path)
    (record,) = read(tmp_path / RECORDING).ranks[0].all(RowsOneByOne)
    assert not record.alone


def test_a_part_of_a_dataset_is_one_too_and_a_batch_has_no_more_rows_than_it() -> None:
    (record,) = seen(DataLoader(Subset(ROWS, range(50)), batch_size=64))
    assert record.rows == 50


def test_of_a_large_batch_a_part_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def collate(rows: list[Any]) -> Any:
        read.append(len(rows))
        return torch.utils.data.default_collate(rows)

    loader = DataLoader(TensorDataset(torch.ones(9000, 2)), batch_size=9000)
    monkeypatch.setattr(rows_one_by_one, "default_collate", collate)
    monkeypatch.setattr(loader, "collate_fn", collate)
    (record,) = seen(loader)
    assert record.rows == 9000 and set(read) == {4096}


def test_rows_without_bytes_are_not_timed() -> None:
    assert seen(DataLoader(TensorDataset(torch.ones(200, 0)), batch_size=64)) == []


def collate(rows: list[Any]) -> Any:
    return torch.utils.data.default_collate(rows)


@pytest.mark.parametrize(
    "loader",
    [
        lambda: DataLoader(Doubled(*ROWS.tensors), batch_size=64),
        lambda: DataLoader(ROWS, batch_size=64, collate_fn=collate),
        lambda: DataLoader(ROWS, batch_size=1),
        lambda: DataLoader(ROWS, sampler=BatchSampler(RandomSampler(ROWS), 64, False), batch_size=None),
        lambda: DataLoader([torch.ones(3)] * 200, batch_size=64),
    ],
    ids=["derived", "collated", "single", "at once", "list"],
)
def test_other_loops_are_not(loader: Callable[[], DataLoader[Dataset[Any]]]) -> None:
    assert seen(loader()) == []


def test_nothing_is_timed_after_an_error() -> None:
    assert seen(DataLoader(ROWS, batch_size=64), how="exception") == []
