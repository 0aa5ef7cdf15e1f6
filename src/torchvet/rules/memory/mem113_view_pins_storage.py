"""MEM113: a small view keeps a large storage alive."""

from __future__ import annotations

from torchvet.rules.base import Rule


class ViewPinsStorage(Rule):
    """A small view keeps a large storage alive."""

    code = "MEM113"
    name = "view-pins-storage"
    summary = "A small view keeps a large storage alive"
    severity = "error"

    what = (
        "Slicing with `x[:, :1]` or `x[0]`, `split`, `chunk`, `narrow`, `expand` and `detach` return views: "
        "tensors that share the storage of the original. A kept view keeps the whole storage, however few of its "
        "elements it shows."
    )
    why = (
        "The list looks like a few bytes per step by `numel()` and holds every element of the tensors that its "
        "views were cut from."
    )
    when_not = (
        "A view about as large as its storage pins nothing extra. Indexing with a list, an index tensor or a mask "
        "copies. A view that dies with its step pins nothing."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 262,144 bytes per step for 16 bytes that it shows; with `.clone()` "
        "it keeps 16, same output. `x[:, :1].detach()` and the first piece of `x.split(1)` of a 1000 × 1000 "
        "float32 tensor show 4,000 bytes and keep 4,000,000; `x[:, :1].clone()` and `x[torch.tensor([0])]` keep "
        "4,000."
    )
    remedy = (
        "Copy what is to be kept: `x[:, :1].detach().clone()`. A single number is best kept with `.item()`. "
        "`.contiguous()` is no substitute: it returns the same storage when the view happens to be contiguous "
        "already."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(64, 256), nn.Linear(256, 10)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
watched = []
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    hidden = torch.tanh(encoder(features))
    loss = nn.functional.cross_entropy(head(hidden), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watched.append(hidden[0, :4].detach())
    if step % 10 == 9:
        drift = (watched[-1] - watched[0]).norm().item()
        print(f"step {step + 1} loss {loss.item():.4f} drift {drift:.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(64, 256), nn.Linear(256, 10)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
watched = []
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    hidden = torch.tanh(encoder(features))
    loss = nn.functional.cross_entropy(head(hidden), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watched.append(hidden[0, :4].detach().clone())
    if step % 10 == 9:
        drift = (watched[-1] - watched[0]).norm().item()
        print(f"step {step + 1} loss {loss.item():.4f} drift {drift:.4f}")
"""
