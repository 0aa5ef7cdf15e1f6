"""Train for a little, then measure on a large held-out set."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 64, generator=generator)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())


def make_model(depth=6, width=128):
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2))


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(make_data(steps * 32, seed=1), batch_size=32)
    model.train()
    for step, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"train {step} {loss.item():.4f}")


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for x, y in loader:
        logits = model(x)
        correct += int((logits.argmax(dim=1) == y).sum())
        total += len(y)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = make_model()
    train(model, 20)
    accuracy = evaluate(model, DataLoader(make_data(args.steps * 512, seed=2), batch_size=512))
    print(f"accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
