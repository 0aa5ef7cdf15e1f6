import torch
import torch.nn as nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Entmax(Function):
    """1.5-entmax"""

    @classmethod
    def forward(cls, ctx, X, dim=0):
        ctx.dim = dim
        max_val, _ = X.max(dim=dim, keepdim=True)
        X = (X - max_val) / 2
        Y = torch.clamp(X - X.mean(dim, keepdim=True), min=0) ** 2
        ctx.Y = Y
        return Y

    @classmethod
    @once_differentiable
    def backward(cls, ctx, dY):
        Y = ctx.Y
        gppr = Y.sqrt()
        dX = dY * gppr
        q = dX.sum(ctx.dim, keepdim=True) / gppr.sum(ctx.dim, keepdim=True).clamp(min=1e-8)
        return dX - q * gppr, None


class SparseAttention(nn.Module):
    def forward(self, q, k, v):
        return Entmax.apply(q @ k.transpose(-1, -2), -1) @ v
