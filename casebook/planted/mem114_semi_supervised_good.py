"""Semi-supervised training: labelled batches are repeated beside the unlabelled ones."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


def endless(loader):
    while True:
        yield from loader


def train(model, labelled, unlabelled, optimizer, epochs, device):
    labelled_loader = DataLoader(labelled, batch_size=32, shuffle=True, num_workers=4)
    unlabelled_loader = DataLoader(unlabelled, batch_size=128, shuffle=True, num_workers=4)
    for epoch in range(epochs):
        for (x, y), (u, _) in zip(endless(labelled_loader), unlabelled_loader):
            x, y, u = x.to(device), y.to(device), u.to(device)
            with torch.no_grad():
                guess = model(u).softmax(1)
            loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(u), guess)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
