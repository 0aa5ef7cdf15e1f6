"""MEM111: a cache keyed by tensors or on a method never hits and keeps everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.finding import Location
from torchvet.rules.growth_rule import GrowthRule, location_of

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class CacheKeyedByTensor(GrowthRule):
    """A cache keyed by tensors or on a method never hits and keeps everything."""

    code = "MEM111"
    name = "cache-keyed-by-tensor"
    summary = "A cache keyed by tensors or on a method never hits and keeps everything"
    severity = "error"

    what = (
        "Tensors hash by identity, not by value: a new batch is a new key even if its numbers are equal. "
        "`functools.lru_cache`, `functools.cache` or a dict keyed by tensors therefore misses every time, and "
        "keeps each key and each result. On a method the cache keeps `self` as well."
    )
    why = (
        "The cache saves no work and keeps every batch that it was ever asked about, with its graph if it has "
        "one. With `lru_cache(maxsize=None)` or `cache` this has no end; a limit only bounds the number of "
        "entries, not their bytes."
    )
    when_not = (
        "A cache keyed by numbers, strings, shapes, dtypes or devices hits as it should, and fills once. A "
        "bounded cache of small tensors is harmless."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 196,608 bytes per step (a 2 × 192 × 32 batch, 49,152, and its 192 × "
        "192 mask, 147,456); keyed by the length it computes one mask and keeps 0 more, same losses. Two equal "
        "tensors: two misses; one of them again: a hit. Three hundred 4,000-byte tensors in the default "
        "`lru_cache` (maxsize 128): 512,000 bytes kept. `lru_cache` on a method of objects that hold 1 MB: "
        "1,000,000 bytes kept per dropped object."
    )
    remedy = (
        "Key the cache by what the result depends on, in plain values: `mask(x.shape[1], x.device)` instead of "
        "`mask(x)`. For a value per object use an attribute or `functools.cached_property`, which dies with the "
        "object. If every input really differs, drop the cache."
    )

    BAD = """\
from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=None)
def causal_mask(tokens):
    length = tokens.shape[1]
    return torch.triu(torch.full((length, length), float("-inf")), diagonal=1)


torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, nhead=2, dim_feedforward=64, dropout=0.0, batch_first=True)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(40):
    tokens, target = torch.randn(2, 192, 32), torch.randn(2, 192, 32)
    output = layer(tokens, src_mask=causal_mask(tokens))
    loss = nn.functional.mse_loss(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=None)
def causal_mask(length):
    return torch.triu(torch.full((length, length), float("-inf")), diagonal=1)


torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, nhead=2, dim_feedforward=64, dropout=0.0, batch_first=True)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(40):
    tokens, target = torch.randn(2, 192, 32), torch.randn(2, 192, 32)
    output = layer(tokens, src_mask=causal_mask(tokens.shape[1]))
    loss = nn.functional.mse_loss(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    specificity = 4

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """A functools cache, or a dict whose keys are tensors."""
        return "cache" in growth.holding.via or growth.holding.key_type == "Tensor"

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Tensors hash by identity."""
        return (
            f"{growth.holding.name} is keyed by tensors, which hash by identity: no new tensor ever "
            "finds an old entry, and "
            "every entry keeps its key and its result alive"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Key by values."""
        return (
            "key the cache by what determines the result (sizes, indices, numbers), give it a "
            "`maxsize`, or drop it; on a "
            "method the cache also keeps `self` alive"
        )

    def location(self, growth: Growth, store: Store | None, recording: Recording) -> Location | None:
        """The cached function, else the store."""
        if "cache" in growth.holding.via:
            return location_of(growth.holding.place)
        return super().location(growth, store, recording)
