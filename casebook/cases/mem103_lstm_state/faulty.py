"""Character model with a state that runs through the whole text, and plain gradient descent."""

import argparse

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog while the small cat sleeps under the warm sun " * 40


class CharModel(nn.Module):
    def __init__(self, symbols, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(symbols, 16)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, tokens, state):
        out, state = self.lstm(self.embed(tokens), state)
        return self.head(out), state


def encode(text):
    symbols = sorted(set(text))
    return torch.tensor([symbols.index(c) for c in text]), len(symbols)


def descend(model, rate):
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad.data, alpha=-rate)
        parameter.grad = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--length", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    data, symbols = encode(TEXT)
    data = data[: len(data) // 32 * 32].view(32, -1)
    model = CharModel(symbols)
    state = None
    for step in range(args.steps):
        start = step * args.length % (data.shape[1] - args.length - 1)
        tokens = data[:, start : start + args.length]
        following = data[:, start + 1 : start + args.length + 1]
        logits, state = model(tokens, state)
        loss = nn.functional.cross_entropy(logits.reshape(-1, symbols), following.reshape(-1))
        loss.backward(retain_graph=True)
        descend(model, 0.2)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
