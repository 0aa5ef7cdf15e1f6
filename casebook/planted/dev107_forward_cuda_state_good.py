import torch
import torch.nn as nn


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=512, layers=2):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.embed = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True, dropout=0.3)
        self.out = nn.Linear(hidden, vocab)

    def init_hidden(self, batch):
        h0 = torch.zeros(self.layers, batch, self.hidden, device=self.out.weight.device)
        c0 = torch.zeros(self.layers, batch, self.hidden, device=self.out.weight.device)
        return h0, c0

    def forward(self, ids, state):
        out, state = self.lstm(self.embed(ids), state)
        return self.out(out), state


def train(text, vocab, device, steps=2000, length=128, batch=32):
    device = torch.device(device)
    net = CharRNN(vocab).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    text = text.to(device)
    for step in range(steps):
        where = torch.randint(0, len(text) - length - 1, (batch,), device=device)
        rows = where[:, None] + torch.arange(length + 1, device=device)
        chunk = text[rows]
        logits, _ = net(chunk[:, :-1], net.init_hidden(batch))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net
