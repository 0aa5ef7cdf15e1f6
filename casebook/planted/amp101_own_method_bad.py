"""Long-context fine-tuning; some optimisers clip for themselves."""

import argparse

import torch
from torch import nn


class MasterWeights:
    """An optimiser over float32 copies that unscales and clips in its own `clip_grad_norm`."""

    def __init__(self, params, lr):
        self.copies = [p.detach().float().clone().requires_grad_() for p in params]
        self.adam = torch.optim.Adam(self.copies, lr=lr)

    def clip_grad_norm(self, limit):
        return nn.utils.clip_grad_norm_(self.copies, limit)

    def step(self):
        self.adam.step()


def loop(model, optimizer, scaler, batches, limit):
    for tokens in batches:
        with torch.autocast("cuda"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad(set_to_none=True)


def main(model, batches):
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=1.0)
    limit = parser.parse_args().limit
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    loop(model, optimizer, torch.amp.GradScaler("cuda"), batches, limit)
