"""Low-rank adaptation as an autograd function."""

import torch


class LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, down, up):
        ctx.save_for_backward(x, down, up)
        with torch.autocast("cuda", enabled=False):
            return x.float() @ down @ up

    @staticmethod
    def backward(ctx, grad):
        x, down, up = ctx.saved_tensors
        x = x.float()
        grad = grad.float()
        inner = grad @ up.T
        return inner @ down.T, x.T @ inner, (x @ down).T @ grad


class LowRankRelu(torch.autograd.Function):
    """Elementwise only: autocast leaves it alone."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0, x, x * slope)

    @staticmethod
    def backward(ctx, grad):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, grad, grad * slope), (grad * x.clamp(max=0)).sum()


down = torch.nn.Parameter(torch.randn(512, 8, device="cuda") * 0.02)
up = torch.nn.Parameter(torch.zeros(8, 512, device="cuda"))
optimizer = torch.optim.AdamW([down, up], lr=1e-3)
for x, target in batches:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = LowRank.apply(x.cuda(), down, up)
        loss = (out - target.cuda()).square().mean()
    loss.backward()
    optimizer.step()
