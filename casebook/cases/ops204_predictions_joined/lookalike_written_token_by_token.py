"""Continues a sequence token by token: each step reads all that is there."""

import argparse

import torch
from torch import nn


class Writer(nn.Module):
    def __init__(self, tokens=20, width=32):
        super().__init__()
        self.embed, self.out = nn.Embedding(tokens, width), nn.Linear(width, tokens)

    def forward(self, text):
        seen = self.embed(text).cumsum(1) / torch.arange(1, text.shape[1] + 1)[:, None]
        return self.out(torch.tanh(seen))

    @torch.no_grad()
    def write(self, text, length):
        for _ in range(length):
            following = self(text)[:, -1].argmax(1, keepdim=True)
            text = torch.cat([text, following], dim=1)
        return text


def main(steps):
    torch.manual_seed(0)
    writer = Writer()
    optimizer = torch.optim.Adam(writer.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        text = (torch.randint(0, 20, (32, 1)) + torch.arange(12)) % 20
        loss = nn.functional.cross_entropy(writer(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}", writer.write(text[:1, :3], 40)[0, :8].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
