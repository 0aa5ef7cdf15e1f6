"""Language model with gradient accumulation; the criterion is handed to the training function."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.decode = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embed(tokens))
        return self.decode(hidden)


def train_epoch(lm, criterion, optimizer, batches, accumulate, device):
    lm.train()
    for i, (tokens, targets) in enumerate(batches):
        tokens, targets = tokens.to(device), targets.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = lm(tokens)
        loss = criterion(logits.view(-1, logits.size(-1)), targets.view(-1)) / accumulate
        loss.backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


def main(batches):
    device = torch.device("cuda")
    lm = LanguageModel(32000, 512).to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=3e-4)
    for _ in range(10):
        train_epoch(lm, criterion, optimizer, batches, 8, device)
