"""Prints the figures of the section Proof."""

import torch
from torch.nn import functional

half = torch.float16
print(torch.tensor(1e-8, dtype=half).item())
print(f"{torch.tensor(1e-7, dtype=half).item():.2e}")
zeros = torch.zeros(4, dtype=half)
results = [
    zeros / (zeros.norm() + 1e-8),
    zeros / zeros.norm().clamp(min=1e-8),
    functional.normalize(zeros, dim=0, eps=1e-8),
]
print("NaN" if all(one.isnan().all() for one in results) else results)
print((zeros[:1] + 1e-8).log().item())
brain = torch.zeros(4, dtype=torch.bfloat16)
print((brain / (brain.norm() + 1e-8))[0].item())
