"""Prints the figures of the section Proof."""

import torch


def total(dtype, one):
    value = torch.zeros((), dtype=dtype)
    for _ in range(5_000):
        value += one
    return value.item()


def average(dtype):
    value = torch.zeros((), dtype=dtype)
    for _ in range(20_000):
        value.mul_(0.999).add_(0.001)
    return value.item()


print(f"{total(torch.float16, 1):,.0f} in float16 and {total(torch.bfloat16, 1):,.0f} in bfloat16")
print(f"{total(torch.float16, 0.5):,.0f} in float16")
print(f"{average(torch.bfloat16):.1f} (bfloat16)")
print(f"{average(torch.float16):.2f} (float16)")
print(f"float32 gave {average(torch.float32):.1f}")
