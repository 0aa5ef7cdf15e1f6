"""Dialogue data: one JSON object a line, tokenised on the fly."""

import json
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


@dataclass
class Args:
    train_file: str = "train.jsonl"
    batch_size: int = 16
    max_len: int = 128


class DialogueDataset(Dataset):
    def __init__(self, path, tokenizer, max_len):
        self.tokenizer, self.max_len = tokenizer, max_len
        self.examples = []
        with open(path, encoding="utf8") as f:
            for line in f:
                obj = json.loads(line)
                self.examples.append({"context": obj["context"], "response": obj["response"]})

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, idx):
        ex = self.examples[idx]
        ids = self.tokenizer.encode(ex["context"] + " </s> " + ex["response"])[: self.max_len]
        return torch.tensor(ids, dtype=torch.long)


def collate(batch):
    return torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)


def build_loader(args: Args, tokenizer) -> DataLoader:
    ds = DialogueDataset(args.train_file, tokenizer, args.max_len)
    return DataLoader(ds, batch_size=args.batch_size, shuffle=True, num_workers=8, collate_fn=collate, pin_memory=True)


def epoch(model, optimizer, loader):
    model.train()
    for ids in loader:
        ids = ids.cuda(non_blocking=True)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
