"""Token tagging where only some tokens of some documents have been annotated."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

IGNORE = -100


class Documents(Dataset):
    def __init__(self, count, vocabulary=100, tags=5):
        g = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(0, vocabulary, (count, 10), generator=g)
        rare = torch.rand(count, 10, generator=g) > 0.1
        self.tags = (self.tokens % tags).masked_fill(rare, IGNORE)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tags[i]}


class Tagger(nn.Module):
    def __init__(self, vocabulary=100, tags=5, width=48):
        super().__init__()
        self.tags = tags
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * width, tags)
        self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)

    def forward(self, input_ids, labels=None):
        logits = self.classifier(self.encoder(self.embedding(input_ids))[0])
        if labels is None:
            return None, logits
        loss = self.criterion(logits.view(-1, self.tags), labels.view(-1))
        return loss, logits


def training_loop(model, loader, optimizer, log_every):
    model.train()
    best = float("inf")
    total = 0.0
    for i, batch in enumerate(loader, 1):
        loss, _ = model(**batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
        if i % log_every == 0:
            mean, total = total / log_every, 0.0
            kept = mean < best
            best = min(best, mean)
            print({"step": i, "loss": round(mean, 3), "kept": kept})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    tagger = Tagger()
    training_loop(
        tagger,
        DataLoader(Documents(args.steps * 2), batch_size=2, shuffle=True),
        torch.optim.AdamW(tagger.parameters(), lr=5e-3),
        log_every=20,
    )
