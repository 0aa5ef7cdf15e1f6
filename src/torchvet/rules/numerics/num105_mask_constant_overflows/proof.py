"""Prints the figures of the section Proof."""

import torch

half = torch.zeros(4, dtype=torch.float16)
mask = torch.ones(4, dtype=torch.bool)


def outcome(call):
    try:
        call()
    except RuntimeError as error:
        return str(error).partition(" (")[0]
    return "worked"


refused = {outcome(lambda v=v: half.masked_fill(mask, v)) for v in (-1e9, -1e5, -65520)}
refused |= {outcome(lambda: torch.full((4,), -1e9, dtype=torch.float16)), outcome(lambda: torch.full_like(half, -1e9))}
refused |= {outcome(lambda: half.new_full((4,), -1e9)), outcome(lambda: half.clone().fill_(-1e9))}
print(*refused, sep="\n")
print(*{outcome(lambda v=v: half.masked_fill(mask, v)) for v in (-1e4, -65504, float("-inf"))})
print(outcome(lambda: half.bfloat16().masked_fill(mask, -1e9)))
