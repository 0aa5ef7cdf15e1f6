"""Prints the figures of the section Proof."""

import torch


def gradients(values, call):
    x = torch.tensor(values, requires_grad=True)
    (found,) = torch.autograd.grad(call(x).sum(), x)
    return ", ".join("NaN" if v != v else f"{v + 0.0:g}" for v in found.tolist())


print(gradients([0.0, -1.0, 2.0], lambda x: torch.where(x > 0, x.log(), 0.0)))
print(gradients([0.0, -1.0, 4.0], lambda x: torch.where(x > 0, x.sqrt(), 0.0)))
print(f"at 0 {gradients([0.0], lambda x: torch.where(x != 0, 1 / x, 0.0))}")
print(gradients([0.0, -1.0, 2.0], lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).log(), 0.0)))
