"""MEM113: a small view keeps a large storage alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules import words
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class ViewPinsStorage(GrowthRule):
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

    specificity = 2

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """Less than half of the bytes that are held are shown by the tensors that hold them."""
        held = growth.direct_per_step
        return held > 0 and held >= 0.5 * growth.bytes_per_step and growth.visible_per_step < 0.5 * held

    def cause(self, growth: Growth, store: Store | None) -> str:
        """View and storage sizes."""
        shown, held = words.size(growth.visible_per_step), words.size(growth.direct_per_step)
        return f"the tensors in {growth.holding.name} show {shown} per step but are views into storages of {held}"

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Clone."""
        value = store.value if store is not None and store.value else "view"
        return f"copy the part that is kept: `{value}.clone()` (after `.detach()`), so that the large storage can go"
