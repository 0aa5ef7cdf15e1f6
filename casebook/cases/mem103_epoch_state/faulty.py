"""A sequence model whose state is made anew for each epoch and never detached within one."""

import argparse

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, features=24, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(features, hidden, num_layers=2)
        self.decoder = nn.Linear(hidden, features)

    def forward(self, chunk, hidden):
        output, hidden = self.rnn(chunk, hidden)
        return self.decoder(output), hidden

    def first_state(self, batch):
        return torch.zeros(2, batch, 64)


def batches(signal, length):
    for start in range(0, signal.size(0) - length - 1, length):
        yield signal[start : start + length], signal[start + 1 : start + length + 1]


class Runner:
    def __init__(self, model, rate):
        self.model = model
        self.rate = rate

    def update(self):
        for p in self.model.parameters():
            p.data.add_(p.grad, alpha=-self.rate)

    def epoch(self, signal, length):
        losses = []
        hidden = self.model.first_state(signal.size(1))
        for chunk, following in batches(signal, length):
            self.model.zero_grad()
            prediction, hidden = self.model(chunk, hidden)
            loss = nn.functional.mse_loss(prediction, following)
            loss.backward(retain_graph=True)
            self.update()
            losses.append(loss.item())
        return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=147)
    parser.add_argument("--length", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    signal = torch.sin(torch.linspace(0, 60, 400)[:, None, None] * torch.rand(1, 16, 24))
    runner = Runner(Reader(), 0.05)
    for epoch in range(max(1, args.steps // 49)):
        print(f"epoch {epoch + 1} loss {runner.epoch(signal, args.length):.4f}")


if __name__ == "__main__":
    main()
