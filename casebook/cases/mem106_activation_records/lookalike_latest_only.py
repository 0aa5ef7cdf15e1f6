"""Watches the activations of every layer while a small convolutional network trains."""

import argparse

import torch
from torch import nn


def watch(model, kinds):
    records = dict()

    def make_hook(name):
        def hook(module, inputs, output):
            records[name] = output.detach()

        return hook

    for name, module in model.named_modules():
        if isinstance(module, kinds):
            module.register_forward_hook(make_hook(name))

    def report():
        return " ".join(f"{name}:{values.abs().mean().item():.3f}" for name, values in records.items())

    return report


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc = nn.Linear(8 * 5 * 5, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def draw(count):
    labels = torch.randint(0, 10, (count,))
    images = torch.randn(count, 1, 14, 14) * 0.3
    rows = torch.arange(14)[None, None, :, None]
    return images + (rows == labels[:, None, None, None]).float(), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Digits()
    report = watch(model, (nn.Conv2d, nn.Linear))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(args.steps):
        images, labels = draw(32)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} {report()}")


if __name__ == "__main__":
    main()
