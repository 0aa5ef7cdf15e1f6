"""Workers of loaders that are started anew for each pass, and what the first batch of a pass takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import WorkerStarts

PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.ones(12, 4)), batch_size=4, {options})
for epoch in range(4):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def seen(folder: Path, options: str) -> list[WorkerStarts]:
    forked(PROGRAM.format(options=options), folder)
    return read(folder / RECORDING).ranks[0].latest(WorkerStarts)


def test_passes_that_start_workers_are_counted_with_their_first_batches(tmp_path: Path) -> None:
    (found,) = seen(tmp_path, "num_workers=1, multiprocessing_context='fork'")
    assert (found.place.line, found.made and found.made.line) == (8, 6)
    assert (found.workers, found.starts) == (1, 4)
    assert 0 < found.first < found.seconds


@pytest.mark.parametrize(
    "options", ["num_workers=0", "num_workers=1, multiprocessing_context='fork', persistent_workers=True"]
)
def test_none_are_where_workers_stay_or_there_are_none(options: str, tmp_path: Path) -> None:
    assert seen(tmp_path, options) == []
