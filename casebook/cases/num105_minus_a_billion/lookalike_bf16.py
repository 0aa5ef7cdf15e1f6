"""Sets of unequal size in bfloat16."""

import argparse

import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, items, present):
        scores = self.score(items).squeeze(-1)
        scores = scores + (1 - present.to(scores.dtype)) * -1e9
        weights = torch.softmax(scores, dim=-1)
        return (weights.unsqueeze(-1) * items).sum(1)


class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(6, 32)
        self.pool = Pool(32)
        self.head = nn.Linear(32, 3)

    def forward(self, items, present):
        return self.head(self.pool(torch.relu(self.inward(items)), present))


def batch(count=32):
    items = torch.randn(count, 5, 6)
    sizes = torch.randint(0, 6, (count,))
    present = torch.arange(5) < sizes[:, None]
    label = (items * present[..., None]).sum(1)[:, :3].argmax(1)
    return items, present, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Sets()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step in range(1, args.steps + 1):
        items, present, label = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
            scores = model(items, present)
        loss = nn.functional.cross_entropy(scores.float(), label)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 15 == 0:
            print(f"{step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
