"""MEM116: sparse gradients that are never cleared grow with every backward."""

from __future__ import annotations

from torchvet.rules.base import Rule


class SparseGradientGrows(Rule):
    """Sparse gradients that are never cleared grow with every backward."""

    code = "MEM116"
    name = "sparse-gradient-grows"
    summary = "Sparse gradients that are never cleared grow with every backward"
    severity = "error"

    what = (
        "`nn.Embedding(sparse=True)` makes a gradient that lists the rows used by the batch. A second backward "
        "without clearing appends its rows to that list: nothing is added up in place, and rows that occur twice "
        "are listed twice. A dense gradient, in contrast, accumulates in place."
    )
    why = (
        "The gradient grows by the batch's rows in every step, and the optimizer works through the whole list "
        "each time, so that steps become slower as well. The mathematics is wrong too: old gradients are applied "
        "again and again (TRN101)."
    )
    when_not = (
        "With `optimizer.zero_grad()` in every step the list starts afresh. Deliberate accumulation over a few "
        "backward passes grows only until it is cleared."
    )
    proof = (
        "torch 2.13.0, CPU. The example's gradient grows by 135 kB per step, with `optimizer.zero_grad()` by 0 "
        "(the losses then differ: old gradients are no longer applied). An `Embedding(10000, 64, sparse=True)` "
        "with 512 indices: 512 entries after one backward, 26,112 after 51, 135,168 bytes more each; the same "
        "without `sparse`: 0 bytes more after the first."
    )
    remedy = (
        "Call `optimizer.zero_grad()` in every step, of every optimizer whose parameters got a gradient. Where "
        "gradients are accumulated on purpose, `weight.grad = weight.grad.coalesce()` adds the duplicate rows "
        "together."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(10_000, 64, sparse=True)
optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
for step in range(40):
    viewed, bought = torch.randint(0, 10_000, (2, 256))
    score = (items(viewed) * items(bought)).sum(1)
    loss = nn.functional.softplus(-score).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(10_000, 64, sparse=True)
optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
for step in range(40):
    viewed, bought = torch.randint(0, 10_000, (2, 256))
    score = (items(viewed) * items(bought)).sum(1)
    loss = nn.functional.softplus(-score).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""
