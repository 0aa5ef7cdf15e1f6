"""Rotary embedding whose positions are made in the model's dtype."""

import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("frequency", 1.0 / base ** (torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, q, k):
        position = torch.arange(8192, device=q.device).to(torch.bfloat16)
        angle = torch.outer(position.float(), self.frequency)
        cos, sin = angle.cos().to(q.dtype), angle.sin().to(q.dtype)
        return self.turn(q, cos, sin), self.turn(k, cos, sin)

    @staticmethod
    def turn(x, cos, sin):
        cos, sin = cos[: x.size(-2)], sin[: x.size(-2)]
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1)
