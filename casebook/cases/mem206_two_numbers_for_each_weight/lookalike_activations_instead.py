"""A narrow model on a large batch: it is activations that take the room."""

import argparse
import logging

import torch
from torch import nn

log = logging.getLogger("tables")


def main(steps):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]
    model = nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        rows = torch.randn(50_000, 64, device="cuda")
        loss = nn.functional.l1_loss(model(rows), rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
