"""A small language model whose attention is written out."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        b, t, w = x.shape
        q, k, v = self.project(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(b, t, w))


class Model(nn.Module):
    def __init__(self, words=256, width=256, depth=6):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Attention(width, 4) for _ in range(depth))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=x.device).triu(1)
        for block in self.blocks:
            x = x + block(x, mask)
        return self.head(x)


def main():
    args = arguments()
    torch.manual_seed(0)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        tokens = torch.randint(0, 256, (2, 1024), device="cuda")
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
