"""Evaluation of several checkpoints, or of plain and averaged weights, in one region."""

import torch


@torch.no_grad()
def compare(model, paths, loader, device):
    model.eval()
    scores = {}
    for path in paths:
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        hits = 0
        with torch.autocast("cuda", dtype=torch.float16):
            for images, labels in loader:
                hits += (model(images.to(device)).argmax(1) == labels.to(device)).sum()
        scores[path] = hits.item() / len(loader.dataset)
    return scores
