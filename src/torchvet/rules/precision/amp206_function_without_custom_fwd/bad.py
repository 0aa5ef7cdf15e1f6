import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w, grad.t() @ x


torch.manual_seed(0)
weight = nn.Parameter(0.1 * torch.randn(1, 16))
optimizer = torch.optim.SGD([weight], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(Product.apply(x, weight), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
