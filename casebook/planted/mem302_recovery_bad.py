"""Long documents: batches that do not fit are left out."""

import gc

import torch


def train(model, loader, optimizer, scheduler):
    skipped = 0
    for step, batch in enumerate(loader):
        try:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            scheduler.step()
        except torch.cuda.OutOfMemoryError:
            skipped += 1
        optimizer.zero_grad()
        gc.collect()
        torch.cuda.empty_cache()
    return skipped
