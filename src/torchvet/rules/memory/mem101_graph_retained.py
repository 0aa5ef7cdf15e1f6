"""MEM101: a tensor kept across steps still owns an autograd graph with its saved tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules import words
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class GraphRetained(GrowthRule):
    """A tensor kept across steps still owns an autograd graph with its saved tensors."""

    code = "MEM101"
    name = "graph-retained"
    summary = "A tensor kept across steps still owns an autograd graph with its saved tensors"
    severity = "error"

    what = (
        "A tensor computed with gradients on refers through `grad_fn` to its autograd graph, and the graph owns "
        "every tensor that it saved for the backward pass. `backward()` frees these saved tensors. A graph that "
        "no backward went through, or that `retain_graph=True` kept, holds them for as long as any tensor that "
        "leads to it is alive. A list, an attribute, a running sum or a buffer that collects such tensors "
        "collects whole graphs."
    )
    why = (
        "A scalar of 4 bytes can keep megabytes of activations alive, and every step adds as much again until "
        "memory runs out. The saved tensors have no Python name of their own: only the small tensor on top has "
        "one, so neither its size nor a search through Python's referrers shows the leak."
    )
    when_not = (
        "Losses kept after a plain `backward()` hold graph nodes and no activations (MEM112). Values taken with "
        "`.item()`, `float()` or `.detach()` own no graph. A window of fixed length, or a list that is emptied "
        "every epoch, is bounded. Losses collected in order to be summed and sent backward later are needed as "
        "they are."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 401,412 bytes per step: the 128 × 784 float32 difference that "
        "`square()` saved (401,408) and the mean itself (4); with `.item()` it keeps 0. The losses of a "
        "three-layer MLP (256 wide, batch 256), kept over 20 steps, hold 534,536 bytes each when no backward ran "
        "or after `backward(retain_graph=True)`, 4 bytes each after `backward()`, and 0 as `.item()`. A running "
        "sum `total = total + loss` without backward holds 534,532 bytes per step."
    )
    remedy = (
        "Keep the number instead of the tensor: `x.item()` for a scalar, `x.detach()` where a tensor is wanted (a "
        "running sum of detached scalars does not grow). Compute what is only logged under `torch.no_grad()`: "
        "then no graph is built at all. Do not detach a tensor that a later `backward()` needs; that cuts its "
        "gradient."
    )

    BAD = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 784))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
pixel_errors = []

for step in range(40):
    images = torch.rand(128, 784)
    reconstruction = model(images)
    loss = F.smooth_l1_loss(reconstruction, images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pixel_errors.append((reconstruction - images).square().mean())
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")

print(f"mean squared error {sum(pixel_errors) / len(pixel_errors):.3f}")
"""

    GOOD = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 784))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
pixel_errors = []

for step in range(40):
    images = torch.rand(128, 784)
    reconstruction = model(images)
    loss = F.smooth_l1_loss(reconstruction, images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pixel_errors.append((reconstruction - images).square().mean().item())
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")

print(f"mean squared error {sum(pixel_errors) / len(pixel_errors):.3f}")
"""

    specificity = 1
    bounded_matters = True

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """A good part of what grows was saved by autograd graphs: detaching frees that part."""
        return growth.bytes_per_step > 0 and growth.graph_per_step >= _WORTH_CUTTING * growth.bytes_per_step

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Whether one value's graph gets longer or one more graph is kept each step."""
        name = growth.holding.name
        nodes = words.number(growth.nodes_per_step)
        if growth.carrier_ops:
            return (
                f"{name} is computed from its own last value, so its autograd graph gets {nodes} nodes longer each step"
            )
        own = growth.direct_per_step
        rest = f"; {words.size(own)} are the stored tensors themselves" if own > growth.graph_per_step / 4 else ""
        return (
            f"what is stored in {name} still owns its autograd graph: {nodes} nodes each step, whose saved tensors no "
            f"backward pass has freed{rest}"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Detach at the store."""
        value = store.value if store is not None and store.value else "the value"
        return (
            f"store a number or a detached tensor: `{value}.item()` for a scalar, `{value}.detach()` for a tensor; or "
            "compute it under `torch.no_grad()` if it is only logged"
        )


_WORTH_CUTTING = 0.25
"""Share of the growth that only the graph holds, from which on the graph is the first thing to say."""
