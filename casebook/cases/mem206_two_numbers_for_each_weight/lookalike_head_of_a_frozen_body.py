"""A large body that stays as it is, and a small head that learns."""

import argparse
import logging

import torch
from torch import nn

log = logging.getLogger("tables")


class Probe(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width)).requires_grad_(False)
        self.head = nn.Linear(width, 1)

    def forward(self, rows):
        with torch.no_grad():
            features = self.body(rows)
        return self.head(features)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    probe = Probe(2048).to("cuda")
    optimizer = torch.optim.AdamW(probe.head.parameters(), lr=1e-3)
    for step in range(args.steps):
        rows = torch.randn(16, 256, device="cuda")
        loss = nn.functional.mse_loss(probe(rows), rows.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d loss %.4f", step, loss.item())
