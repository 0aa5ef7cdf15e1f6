"""Sequence tagging; the loss is a function with a padding mask."""

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self, vocab, tags, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.rnn = nn.LSTM(dim, dim // 2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(dim, tags)

    def forward(self, ids):
        return self.fc(self.rnn(self.emb(ids))[0])


def tag_loss(scores, tags):
    return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=-1)


class Runner:
    def __init__(self, model: Tagger):
        self.model = model.cuda()
        self.optimizer = torch.optim.Adam(model.parameters())
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self, ids, tags):
        with torch.autocast("cuda", dtype=torch.float16):
            scores = self.model(ids)
        loss = tag_loss(scores.float(), tags)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def fit(batches):
    runner = Runner(Tagger(1000, 9))
    for ids, tags in batches:
        runner.step(ids.cuda(), tags.cuda())
