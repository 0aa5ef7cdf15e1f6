"""Contrastive loss written out, and a ranking loss."""

import torch
from torch import nn


class Contrastive(nn.Module):
    def __init__(self, temperature=0.01):
        super().__init__()
        self.temperature = temperature

    def forward(self, anchors, others):
        similarity = anchors @ others.t() / self.temperature
        weights = torch.exp(similarity)
        share = weights / weights.sum(dim=1, keepdim=True)
        return -share.diagonal().clamp_min(1e-6).log().mean()


def ranking_loss(better, worse):
    return -torch.log(torch.sigmoid(better - worse)).mean()


def train(encoder, optimizer, loader, contrast=Contrastive()):
    for left, right, better, worse in loader:
        loss = contrast(encoder(left), encoder(right)) + ranking_loss(encoder(better), encoder(worse))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
