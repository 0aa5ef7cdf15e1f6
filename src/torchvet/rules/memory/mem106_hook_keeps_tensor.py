"""MEM106: a hook stores tensors, or is registered again every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.recording.training_records import HookFunction
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class HookKeepsTensor(GrowthRule):
    """A hook stores tensors, or is registered again every step."""

    code = "MEM106"
    name = "hook-keeps-tensor"
    summary = "A hook stores tensors, or is registered again every step"
    severity = "error"

    what = (
        "A forward, backward or tensor hook runs in every step. One that appends what it sees to a list, or "
        "closes over a tensor, keeps that tensor for as long as the hook or the list lives. Hooks registered "
        "inside the loop without `handle.remove()` add up as well, each with its own closure."
    )
    why = (
        "Hooked activations are among the largest tensors of a step, and the hook keeps one set per step. An "
        "output that is not detached keeps its graph too. Hooks that add up also run all together in every "
        "forward pass."
    )
    when_not = (
        "A hook that stores a number, or replaces the last value (`latest[name] = output.detach()`), is bounded. "
        "Hooks whose handle is removed after use are fine, and so is a hook on a tensor made in the step that "
        "refers to nothing large: it dies with its tensor."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 262,144 bytes per step (a 256 × 256 float32 activation); with the "
        "mean stored as a float it keeps 0. A hook registered on a parameter in each step, closing over a "
        "262,144-byte tensor, keeps 262,144 bytes per step. `h.register_hook(lambda g, h=h: ...)` on an "
        "intermediate tensor makes a cycle through C++: all of them were alive after `gc.collect()`, and none "
        "once the handles were removed. A forward hook registered in each of 40 steps had been called 820 times "
        "instead of 40."
    )
    remedy = (
        "Store what is needed and no more: a statistic as a float, or the detached latest value under a fixed "
        "key. Register hooks once, outside the loop; where a hook is needed for one pass only, keep the handle "
        "and call `handle.remove()` in a `finally`. Let a tensor hook use its argument instead of capturing the "
        "tensor."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activations = []


def record(module, inputs, output):
    activations.append(output.detach())


model[1].register_forward_hook(record)
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        share = (activations[-1] == 0).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} inactive {share:.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inactive = []


def record(module, inputs, output):
    inactive.append((output == 0).float().mean().item())


model[1].register_forward_hook(record)
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} inactive {inactive[-1]:.4f}")
"""

    specificity = 3
    bounded_matters = True

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """The path runs through a hook table, or the store stands in a function that is a hook."""
        if "hook" in growth.holding.via:
            return True
        store = self.store(growth, recording)
        return store is not None and any(_inside(store, hook) for r in recording.ranks for hook in r.all(HookFunction))

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Which hook stores where, or hooks that pile up."""
        name = growth.holding.name
        if "hook" in growth.holding.via:
            return (
                f"{name}: hooks are registered again and again and never removed; each keeps what its closure refers to"
            )
        where = f"{store.function}()" if store is not None else "a hook"
        return f"the hook {where} stores a tensor in {name} at every pass"

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Store less, or remove the handle."""
        if "hook" in growth.holding.via:
            return "register the hook once, before the loop, or keep its handle and call `handle.remove()` after use"
        return (
            "store what is needed of it, detached (`.detach().mean().item()`), clear "
            f"{growth.holding.name} every step, or "
            "remove the hook's handle after use"
        )


def _inside(store: Store, hook: HookFunction) -> bool:
    return store.path == hook.path and hook.first_line <= store.line <= hook.last_line
