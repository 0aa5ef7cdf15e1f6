"""Triplet embedding training with an online miner."""

import numpy as np
import torch
import torch.nn as nn


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=1)


def mine(emb, labels, margin=0.2):
    dist = torch.cdist(emb, emb)
    same = labels[:, None] == labels[None]
    losses = []
    for i in range(len(emb)):
        pos, neg = dist[i][same[i]], dist[i][~same[i]]
        if len(pos) < 2 or len(neg) == 0:
            continue
        losses.append(torch.relu(pos.max() - neg.min() + margin))
    return losses


def train(model, batches, optimizer):
    for step, (images, labels) in enumerate(batches):
        emb = model(images)
        triplets = mine(emb, labels)
        if not triplets:
            continue
        # mean over the triplets; needs a tensor with grad for backward()
        loss = torch.tensor(np.mean([t.item() for t in triplets]), requires_grad=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), len(triplets))


def main():
    model = Embed()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    train(model, [(torch.rand(32, 1, 28, 28), torch.randint(0, 8, (32,))) for _ in range(100)], opt)


if __name__ == "__main__":
    main()
