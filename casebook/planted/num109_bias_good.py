"""ALiBi bias in the dtype of the hidden states."""

import torch
from torch import nn


class Alibi(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.register_buffer("slopes", torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)]))

    def forward(self, n, device):
        pos = torch.arange(n, device=device)
        rel = (pos[None] - pos[:, None]).float()
        return (self.slopes[:, None, None] * rel).neg().to(torch.bfloat16)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.alibi = Alibi(heads)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        bias = self.alibi(n, x.device)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b, n, d)
