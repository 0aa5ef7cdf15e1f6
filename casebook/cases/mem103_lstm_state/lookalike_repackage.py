"""Truncated backpropagation in the style of the word_language_model example."""

import argparse

import torch
from torch import nn


def repackage_hidden(h):
    """Cut hidden states off from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, num_layers=2)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid

    def forward(self, source, hidden):
        output, hidden = self.rnn(self.encoder(source), hidden)
        return self.decoder(output), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return weight.new_zeros(2, bsz, self.nhid), weight.new_zeros(2, bsz, self.nhid)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bptt", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    source = (torch.arange(3000) * 7 % 50).view(20, -1).t().contiguous()
    model = RNNModel(50, 24, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hidden = model.init_hidden(20)
    for step in range(args.steps):
        i = step * args.bptt % (len(source) - args.bptt - 1)
        data, targets = source[i : i + args.bptt], source[i + 1 : i + 1 + args.bptt].reshape(-1)
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        loss = nn.functional.cross_entropy(output.view(-1, 50), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if step % 10 == 9:
            print(f"| {step + 1} | loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
