"""A word language model: batches continue one another, so that the state goes from batch to batch."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, words, size, layers):
        super().__init__()
        self.encoder = nn.Embedding(words, size)
        self.lstm = nn.LSTM(size, size, layers, dropout=0.2)
        self.decoder = nn.Linear(size, words)

    def forward(self, tokens, hidden):
        output, hidden = self.lstm(self.encoder(tokens), hidden)
        return self.decoder(output).flatten(0, 1), hidden

    def start(self, batch):
        weight = self.decoder.weight
        return weight.new_zeros(2, batch, 200), weight.new_zeros(2, batch, 200)


def train(lm, source, criterion, optimizer, bptt=35):
    lm.train()
    hidden = lm.start(source.size(1))
    for begin in range(0, source.size(0) - 1, bptt):
        length = min(bptt, source.size(0) - 1 - begin)
        data, targets = source[begin : begin + length], source[begin + 1 : begin + 1 + length].reshape(-1)
        optimizer.zero_grad()
        hidden = tuple(part.detach() for part in hidden)
        output, hidden = lm(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(lm.parameters(), 0.25)
        optimizer.step()
        if begin % (100 * bptt) == 0:
            print(f"{begin} loss {loss.item():.3f}")


def main(corpus):
    lm = LanguageModel(10_000, 200, 2)
    optimizer = torch.optim.SGD(lm.parameters(), lr=5.0)
    for _ in range(6):
        train(lm, corpus, nn.CrossEntropyLoss(), optimizer)
