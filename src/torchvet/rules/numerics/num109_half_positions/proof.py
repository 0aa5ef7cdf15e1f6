"""Prints the figures of the section Proof."""

import torch


def distinct(count, dtype):
    return len(torch.arange(count, dtype=dtype).unique())


print(
    f"{distinct(4096, torch.bfloat16):,} distinct values in bfloat16 and {distinct(4096, torch.float16):,} in float16"
)
print(f"{distinct(512, torch.bfloat16):,} in bfloat16")
for dtype in (torch.bfloat16, torch.float16):
    longest = next(n for n in range(1, 5000) if distinct(n + 1, dtype) < n + 1)
    print(f"{longest:,} in {str(dtype).removeprefix('torch.')}")
