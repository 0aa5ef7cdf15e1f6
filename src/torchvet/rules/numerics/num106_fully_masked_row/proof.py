"""Prints the figures of the section Proof."""

import torch
from torch.nn import functional

scores = torch.full((4,), float("-inf"))
print("4 NaN" if torch.softmax(scores, 0).isnan().all() and torch.log_softmax(scores, 0).isnan().all() else "finite")
finite = torch.softmax(torch.full((4,), torch.finfo(torch.float32).min), 0)
print(f"each was {finite.unique().item():g}")
x, nothing = torch.randn(1, 4, 8), torch.zeros(4, 4, dtype=torch.bool)
additive = torch.zeros(4, 4).masked_fill(~nothing, float("-inf"))
both = {functional.scaled_dot_product_attention(x, x, x, mask).abs().max().item() for mask in (nothing, additive)}
print(f"gave {both.pop():g}" if len(both) == 1 else both)
