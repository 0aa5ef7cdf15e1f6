"""Fine-tunes an encoder that returns all of its hidden states, as many libraries do."""

import argparse
from typing import NamedTuple

import torch
from torch import nn


class EncoderOutput(NamedTuple):
    logits: torch.Tensor
    hidden_states: tuple[torch.Tensor, ...]


class Encoder(nn.Module):
    def __init__(self, width=128, depth=6, classes=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        states = [x]
        for layer in self.layers:
            states.append(states[-1] + torch.relu(layer(states[-1])))
        return EncoderOutput(self.classifier(states[-1]), tuple(states))


def data(steps, rule):
    for _ in range(steps):
        x = torch.randn(256, 128)
        yield x, (x @ rule).argmax(dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step, (x, y) in enumerate(data(args.steps, torch.randn(128, 5)), start=1):
        output = model(x)
        loss = nn.functional.cross_entropy(output.logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            spread = output.hidden_states[-1].detach().std().item()
            print(f"step {step} loss {loss.item():.4f} spread {spread:.4f}")
        del output, loss


if __name__ == "__main__":
    main()
