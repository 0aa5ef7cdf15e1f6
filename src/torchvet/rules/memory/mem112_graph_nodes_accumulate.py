"""MEM112: losses kept after backward hold graph nodes in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules import words
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class GraphNodesAccumulate(GrowthRule):
    """Losses kept after backward hold graph nodes in host memory."""

    code = "MEM112"
    name = "graph-nodes-accumulate"
    summary = "Losses kept after backward hold graph nodes in host memory"
    severity = "info"

    what = (
        "After `backward()` the activations are freed, but the nodes of the graph stay for as long as the loss "
        "does. They are small objects in host memory, a few per layer, and the nodes at the leaves refer to the "
        "parameters."
    )
    why = (
        "Host memory grows by some kilobytes per layer and step, on the CPU side even for a model on a GPU. Kept "
        "losses also keep the model's parameters alive after `del model`."
    )
    when_not = (
        "For short runs and small models it is a matter of megabytes, which is why it is `info` unless it is "
        "measured to be big. Losses that never went backward are another matter: they hold their activations "
        "(MEM101)."
    )
    proof = (
        "torch 2.13.0, CPU, heap in use as glibc's `mallinfo2` counts it. A kept loss of 20 Linear layers holds "
        "32,068 bytes, of 40 layers 63,067: about 1,550 bytes per layer; detached about 400 whatever the depth. "
        "The example (41 Linear and 40 Tanh layers) grows by 89 kB of heap and 4 bytes of tensors per step, with "
        "`.item()` by less than 100 bytes of heap. A weak reference to a weight was alive after `del model` while "
        "one loss was kept, and dead when it was dropped."
    )
    remedy = "Keep `loss.item()`, or `loss.detach()` where reading the number at once would make a GPU wait."

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(40) for layer in (nn.Linear(32, 32), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(40):
    features, target = torch.randn(32, 32), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} mean {sum(losses) / len(losses):.3f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(40) for layer in (nn.Linear(32, 32), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(40):
    features, target = torch.randn(32, 32), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} mean {sum(losses) / len(losses):.3f}")
"""

    specificity = 1

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """Graph nodes pile up, and next to no tensor memory with them."""
        bytes_of_tensors = growth.direct_per_step + growth.graph_per_step
        piles_up = growth.tensors_per_step > 0 or bool(growth.carrier_ops)
        return piles_up and growth.nodes_per_step >= 0.5 and bytes_of_tensors < _BYTES_PER_NODE * growth.nodes_per_step

    def message(self, growth: Growth, recording: Recording) -> str:
        """Nodes, not bytes."""
        return (
            f"{growth.holding.name} keeps {words.number(growth.nodes_per_step)} autograd nodes more alive every "
            f"{words.per_step(growth.kind)} ({words.size(growth.bytes_per_step)} of tensors)"
        )

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Backward freed the saved tensors, not the nodes."""
        return (
            f"what is stored in {growth.holding.name} has been through backward, which freed its "
            "saved tensors; the graph's "
            "nodes stay, in host memory, and keep the parameters alive too"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Store the number."""
        value = store.value if store is not None and store.value else "loss"
        return f"store the number: `{value}.item()`"


_BYTES_PER_NODE = 400
"""Host bytes of a node, roughly: about 1,550 B per Linear layer, which makes three (torch 2.13.0, measured)."""
