"""OPS301: the step waits for its data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import Trace


class InputBound(Rule):
    """The step waits for data that the loader has not ready."""

    code = "OPS301"
    name = "input-bound"
    summary = "The step waits for data that the loader has not ready"
    severity = "warning"

    what = (
        "`next()` on the loader blocks until the batch is there. With `num_workers=0` the batch is made in the "
        "training process itself, at that moment, while the device has nothing to do; with workers too few or too "
        "slow it is waited for."
    )
    why = (
        "The device idles for as long, at every step, and no change to the model helps. A counter of GPU utilisation "
        "does not tell this from other causes."
    )
    when_not = (
        "Where the device is still working off what was queued, the wait costs nothing: only idle time counts. "
        "The first batch of an epoch has to start the workers; that is no fault of the steady state."
    )
    proof = (
        "torch 2.13.0, CPU: a dataset that computed the mean of 256 images for every item took 892 ms for 8 "
        "batches, 152 ms with the mean computed once. In a published pair of traces (ResNet-50 on a V100) the "
        "loader took 39 % of the step with 0 workers, 1 % with 4."
    )
    remedy = (
        "Move what does not depend on the item out of `__getitem__`; then give the DataLoader `num_workers` (2 to "
        "8 per device), `persistent_workers=True` and `pin_memory=True`. Decode or resize once and store the "
        "result where the work is always the same."
    )

    BAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Images(Dataset):
    def __init__(self):
        self.data = torch.randn(256, 3, 64, 64)
        self.mean = self.data.mean(0)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        mean = self.data.mean(0)
        return (self.data[index] - mean).flatten(), self.data[index].mean()


model = nn.Sequential(nn.Linear(3 * 64 * 64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for inputs, targets in DataLoader(Images(), batch_size=32):
    loss = nn.functional.mse_loss(model(inputs)[:, 0], targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
"""

    GOOD = BAD.replace("        mean = self.data.mean(0)\n", "").replace("index] - mean", "index] - self.mean")

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """By the time that the device was idle while the loader was waited for; without a device, by the wait."""
        found = trace_costs.worst(trace, lambda r: r.loader.seconds if r.loader is not None else 0.0)
        if found is None or found.rank.loader is None:
            return
        rank, loader = found.rank, found.rank.loader
        idle = f"; the device is idle for {trace_costs.of_step(rank, loader.seconds)}" if rank.gpu is not None else ""
        alone = "_SingleProcess" in loader.what
        yield trace_costs.observed(
            self, found, trace, cost=loader,
            message=f"the loader takes {trace_costs.of_step(rank, loader.duration)}{idle}",
            cause="the batch is made in the training process (num_workers=0), while nothing else happens" if alone
            else "the loader's workers do not keep up with the steps",
            advice="give the DataLoader num_workers, and make __getitem__ cheaper" if alone
            else "more workers, prefetch_factor, or less work in __getitem__",
        )  # fmt: skip
