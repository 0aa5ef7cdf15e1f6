"""Evaluates several checkpoints in one region."""

import torch


@torch.no_grad()
def compare(model, paths, batch):
    model = model.cuda().eval()
    scores = {}
    for path in paths:
        model.load_state_dict(torch.load(path, weights_only=True, map_location="cuda"))
        with torch.autocast("cuda"):
            scores[path] = model(batch).float().softmax(-1)
    return scores


def main(paths):
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    print(compare(net, paths, torch.randn(16, 32, device="cuda")))
