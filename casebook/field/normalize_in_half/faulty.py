"""Contrastive embeddings of item baskets under autocast; an empty basket is a row of zeros."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Baskets(Dataset):
    def __init__(self, count, items=60):
        g = torch.Generator().manual_seed(10)
        taste = torch.randint(0, 6, (count, 1), generator=g)
        likely = (torch.arange(items) % 6 == taste).float() * 0.5
        self.first = torch.bernoulli(likely, generator=g)
        self.second = torch.bernoulli(likely, generator=g)
        self.first[::40] = 0.0

    def __len__(self):
        return len(self.first)

    def __getitem__(self, i):
        return self.first[i], self.second[i]


class BasketEncoder(nn.Module):
    def __init__(self, items=60, width=32):
        super().__init__()
        self.items = nn.Linear(items, 64, bias=False)
        self.project = nn.Linear(64, width, bias=False)

    def forward(self, basket):
        z = self.project(torch.relu(self.items(basket)))
        return F.normalize(z, dim=-1)


def info_nce(a, b, temperature=0.2):
    similarity = a.float() @ b.float().T / temperature
    target = torch.arange(len(a))
    return (F.cross_entropy(similarity, target) + F.cross_entropy(similarity.T, target)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    encoder = BasketEncoder()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    data = DataLoader(Baskets(args.steps * args.batch_size), batch_size=args.batch_size, shuffle=True)
    finite = 0
    for a, b in data:
        with torch.autocast("cpu", dtype=torch.float16):
            za, zb = encoder(a), encoder(b)
        loss = info_nce(za, zb)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        finite += loss.isfinite().item()
    print(f"{finite} of {len(data)} losses finite, scale {scaler.get_scale():g}")


if __name__ == "__main__":
    main()
