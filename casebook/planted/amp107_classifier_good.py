#!/usr/bin/env python3
"""Fine-tune a BERT classifier without the Trainer."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup


def set_seed(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def collate(rows, tok):
    enc = tok([r["text"] for r in rows], padding=True, truncation=True, max_length=256, return_tensors="pt")
    enc["labels"] = torch.tensor([r["label"] for r in rows])
    return enc


def main(rows, name="bert-base-uncased", epochs=3, lr=2e-5):
    set_seed(42)
    device = torch.device("cuda")
    tok = AutoTokenizer.from_pretrained(name)
    model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=2).to(device)
    loader = DataLoader(rows, batch_size=32, shuffle=True, collate_fn=lambda r: collate(r, tok), num_workers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    total = len(loader) * epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, int(0.1 * total), total)
    scaler = torch.amp.GradScaler("cuda")
    model.train()
    for epoch in range(epochs):
        for step, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.float16):
                outputs = model(**batch)
                loss = outputs.loss
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() >= before:
                scheduler.step()
            optimizer.zero_grad()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    model.save_pretrained("out")
