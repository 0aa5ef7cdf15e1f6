"""Character model: trains on random pieces, then writes a text one character at a time."""

import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, 64)
        self.cell = nn.GRUCell(64, 256)
        self.out = nn.Linear(256, vocab)

    def forward(self, char, h):
        h = self.cell(self.embed(char), h)
        return self.out(h), h


def train_piece(rnn, piece, optimizer):
    h = torch.zeros(1, 256)
    loss = 0
    optimizer.zero_grad()
    for i in range(len(piece) - 1):
        logits, h = rnn(piece[i : i + 1], h)
        loss = loss + nn.functional.cross_entropy(logits, piece[i + 1 : i + 2])
    loss.backward()
    optimizer.step()
    return loss.item() / len(piece)


@torch.inference_mode()
def write(rnn, first, length):
    rnn.eval()
    h = torch.zeros(1, 256)
    char, text = first, []
    for _ in range(length):
        logits, h = rnn(char, h)
        char = torch.multinomial(logits.softmax(-1), 1)[0]
        text.append(char.item())
    rnn.train()
    print(text)


def main(text, vocab):
    rnn = CharRNN(vocab)
    optimizer = torch.optim.Adam(rnn.parameters(), lr=5e-3)
    for epoch in range(2000):
        start = torch.randint(0, len(text) - 200, (1,)).item()
        error = train_piece(rnn, text[start : start + 200], optimizer)
        if epoch % 100 == 0:
            print(epoch, error)
            write(rnn, text[:1], 100_000)
