"""A recurrent model foretells a signal; the losses of all moments are added up, for each depends on the one before."""

import argparse

import torch
from torch import nn


class Foretell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(4, width)
        self.out = nn.Linear(width, 4)

    def forward(self, x, state):
        state = self.cell(x, state)
        return self.out(state), state


def signals(count, length):
    phase, speed = torch.rand(count, 1, 4) * 6.28, 0.1 + torch.rand(count, 1, 4)
    return torch.sin(phase + speed * torch.arange(length)[:, None])


def update(model, optimizer, batch):
    state, losses = torch.zeros(len(batch), 96), []
    for moment in range(batch.shape[1] - 1):
        foretold, state = model(batch[:, moment], state)
        losses.append(nn.functional.mse_loss(foretold, batch[:, moment + 1]))
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Foretell(96)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        loss = update(model, optimizer, signals(512, 17))
        if step % 6 == 0:
            print(f"update {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
