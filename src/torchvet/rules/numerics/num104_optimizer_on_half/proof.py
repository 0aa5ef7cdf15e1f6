"""Prints the figures of the section Proof."""

import torch


def stepped(dtype, gradients, steps=1, **options):
    weight = torch.nn.Parameter(torch.ones(len(gradients), dtype=dtype))
    optimizer = torch.optim.Adam([weight], lr=1e-3, **options)
    for _ in range(steps):
        weight.grad = torch.tensor(gradients, dtype=dtype)
        optimizer.step()
    return ", ".join("NaN" if v != v else f"{v:.4f}".replace("1.0000", "1.0") for v in weight.tolist())


print(stepped(torch.float16, [0, 1e-4, 1e-2]))
print(stepped(torch.float16, [0, 1e-4, 1e-2], fused=True))
print("still 1" if stepped(torch.bfloat16, [1.0], 100) == "1.0" else stepped(torch.bfloat16, [1.0], 100))
