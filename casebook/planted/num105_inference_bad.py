"""Pooling by attention in a model that is halved for inference."""

import torch
from torch import nn

NEG_INF = -1e9


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Parameter(torch.randn(width, 1))

    def forward(self, tokens, keep):
        score = (tokens @ self.query).squeeze(-1)
        score = score.masked_fill(~keep, NEG_INF)
        return (score.softmax(-1).unsqueeze(-1) * tokens).sum(1)


@torch.no_grad()
def embed(batches, device="cuda"):
    pool = Pool(768)
    pool = pool.to(device).half().eval()
    return torch.cat([pool(tokens.to(device).half(), keep.to(device)).cpu() for tokens, keep in batches])
