"""Fine-tune a small transformer and look at where it attends."""

from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F

ATTENTION = defaultdict(list)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, tag):
        super().__init__()
        self.heads, self.tag = heads, tag
        self.qkv = nn.Linear(dim, dim * 3)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (u.view(b, t, self.heads, d // self.heads).transpose(1, 2) for u in (q, k, v))
        att = (q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5).softmax(-1)
        ATTENTION[self.tag].append(att.detach().cpu())  # detached, so it cannot leak
        y = (att @ v).transpose(1, 2).reshape(b, t, d)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, dim, heads, tag):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads, tag)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class TinyLM(nn.Module):
    def __init__(self, vocab=256, dim=64, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, f"block{i}") for i in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(n, size=8, length=32):
    for _ in range(n):
        ids = torch.randint(0, 256, (size, length + 1))
        yield ids[:, :-1], ids[:, 1:]


def fit(steps=200):
    model = TinyLM()
    opt = torch.optim.AdamW(model.parameters(), 3e-4)
    for it, (x, y) in enumerate(batches(steps)):
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if it % 50 == 0:
            print(it, loss.item(), {k: v[-1].max().item() for k, v in ATTENTION.items()})


fit()
