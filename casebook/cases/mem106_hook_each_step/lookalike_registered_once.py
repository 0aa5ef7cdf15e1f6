"""One hook for the whole run; it keeps the norm of each gradient as a number."""

import argparse

import torch
from torch import nn


class GradientLog:
    def __init__(self, model):
        self.norms = {name: [] for name, _ in model.named_parameters()}
        for name, parameter in model.named_parameters():
            parameter.register_hook(self.recorder(name))

    def recorder(self, name):
        def record(gradient):
            self.norms[name].append(gradient.detach().norm().item())

        return record

    def last(self):
        return " ".join(f"{name}={values[-1]:.4f}" for name, values in self.norms.items())


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 1))
    log = GradientLog(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.randn(128, 100)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.mean(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(step + 1, f"{loss.item():.5f}", log.last())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
