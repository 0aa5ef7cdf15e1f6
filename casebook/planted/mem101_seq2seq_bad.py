"""Teacher forcing over time steps; the loss of all of them goes backward at once."""

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, token, state):
        state = self.gru(self.embedding(token), state)
        return self.out(state), state


def train_epoch(decoder, batches, optimizer, criterion):
    entropies = []
    for tokens, state in batches:
        loss = 0
        logits_seen = []
        for t in range(tokens.size(1) - 1):
            logits, state = decoder(tokens[:, t], state)
            loss += criterion(logits, tokens[:, t + 1])
            logits_seen.append(logits)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimizer.step()
        stacked = torch.stack(logits_seen).log_softmax(-1)
        entropy = -(stacked.exp() * stacked).sum(-1)
        entropies.append(entropy.mean())
    print("entropy", float(sum(entropies)) / len(entropies))


def main(batches):
    decoder = Decoder(8000, 256)
    optimizer = torch.optim.Adam(decoder.parameters())
    for _ in range(10):
        train_epoch(decoder, batches, optimizer, nn.CrossEntropyLoss())
