"""A transformer under fp16 autocast, its mask filled with -1e9."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(mask == 0, -1e9)
        return self.out((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, mask):
        return x + self.attention(self.norm(x), mask)


def train(loader, args):
    block = Block(512, 8).cuda()
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for x, mask, target in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(block(x.cuda(), mask.cuda()), target.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
