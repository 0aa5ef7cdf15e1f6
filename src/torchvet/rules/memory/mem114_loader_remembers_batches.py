"""MEM114: the loop around the data loader keeps every batch of the first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.finding import Severity
from torchvet.recording.records import Window
from torchvet.recording.training_records import LoaderMemory
from torchvet.rules import grading
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class LoaderRemembersBatches(GrowthRule):
    """The loop around the data loader keeps every batch of the first epoch."""

    code = "MEM114"
    name = "loader-remembers-batches"
    summary = "The loop around the data loader keeps every batch of the first epoch"
    severity = "warning"

    what = (
        "`itertools.cycle(loader)` keeps a reference to every batch that it hands out, in order to hand the same "
        "ones out again. `list(loader)` and `itertools.tee` with one side behind keep them too."
    )
    why = (
        "Memory grows by one batch per step for a whole epoch and then holds the entire data set, as collated "
        "tensors. With `cycle` every later epoch also repeats the first one exactly: the loader's shuffling and "
        "random augmentation are lost."
    )
    when_not = (
        "A data set small enough to be held in memory may be kept on purpose, as batches on the device for "
        "instance. The growth ends with the first epoch."
    )
    proof = (
        "torch 2.13.0, CPU. The example grows by 262,656 bytes per step (64 × 1024 float32 and 64 int64), with a "
        "generator by 0, same losses in the first epoch. `cycle` over a loader of ten 262,144-byte batches holds "
        "1,310,720 bytes after 5 batches and 2,621,440 after 10, 20 and 30; with `shuffle=True` its second pass "
        "gave the batches of the first in the same order."
    )
    remedy = (
        "Start the loader anew for each epoch: a generator with `while True: yield from loader`, or a loop over "
        "epochs. This also shuffles each epoch afresh, so results differ from the second epoch on, as they "
        "should."
    )

    BAD = """\
from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
dataset = TensorDataset(torch.randn(3072, 1024), torch.randint(0, 10, (3072,)))
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Linear(1024, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = cycle(loader)
for step in range(40):
    features, target = next(batches)
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def endless(loader):
    while True:
        yield from loader


torch.manual_seed(0)
dataset = TensorDataset(torch.randn(3072, 1024), torch.randint(0, 10, (3072,)))
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Linear(1024, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = endless(loader)
for step in range(40):
    features, target = next(batches)
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    specificity = 4

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """An iterator of itertools keeps the batches of a loader."""
        return "iterator" in growth.holding.via

    def grade(self, growth: Growth, recording: Recording) -> Severity:
        """It stops growing after one epoch: by what an epoch's batches take, of the peak."""
        whole = _epoch(growth, recording)
        if whole is None:
            return super().grade(growth, recording)
        peak = max([w.peak for r in recording.ranks for w in r.all(Window)], default=0)
        limit = recording.ranks[0].program.memory_limit if recording.ranks[0].program else 0
        return "error" if limit and whole + peak > limit else grading.of_share(whole / (whole + peak))

    def cause(self, growth: Growth, store: Store | None) -> str:
        """cycle keeps what it has seen."""
        return (
            f"{growth.holding.name} keeps every batch of the first epoch so as to repeat them; the "
            "loader is never asked "
            "again, so the order is never shuffled anew either"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Loop over the loader again."""
        return "write a generator that starts the loader anew: `def endless(loader): while True: yield from loader`"


def _epoch(growth: Growth, recording: Recording) -> int | None:
    """Bytes of all batches of the loader whose batches the name keeps: the largest of those known."""
    loaders = [m for r in recording.ranks for m in r.all(LoaderMemory) if m.length is not None]
    sizes = [m.batch_bytes * m.length for m in loaders if m.length is not None and m.alive > m.capacity]
    return max(sizes, default=None)
