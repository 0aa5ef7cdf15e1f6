"""Losses of a metric-learning library."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def pairwise(x, y):
    return (x.unsqueeze(1) - y.unsqueeze(0)).pow(2).sum(-1).clamp(min=1e-12).sqrt()


class CenterLoss(nn.Module):
    """Wen et al., ECCV 2016.

    Args:
        num_classes: how many identities.
        feat_dim: width of the embedding.
        device: where the centres live.
    """

    def __init__(self, num_classes=751, feat_dim=2048, device="cpu"):
        super().__init__()
        self.num_classes = num_classes
        self.device = device
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim, device=device))

    def forward(self, x, labels):
        batch_size = x.size(0)
        dist = pairwise(x, self.centers).pow(2)
        classes = torch.arange(self.num_classes, device=x.device)
        wanted = labels.unsqueeze(1).expand(batch_size, self.num_classes)
        mask = wanted.eq(classes.expand(batch_size, self.num_classes))
        return (dist * mask.float()).clamp(min=1e-12, max=1e12).sum() / batch_size


class ProxyAnchor(nn.Module):
    def __init__(self, classes, dim, margin=0.1, alpha=32.0):
        super().__init__()
        self.proxies = nn.Parameter(torch.empty(classes, dim))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")
        self.margin, self.alpha = margin, alpha

    def forward(self, x, labels):
        cos = F.linear(F.normalize(x), F.normalize(self.proxies))
        hot = F.one_hot(labels, self.proxies.size(0)).bool()
        pos = torch.exp(-self.alpha * (cos - self.margin)).masked_fill(~hot, 0.0).sum(0)
        neg = torch.exp(self.alpha * (cos + self.margin)).masked_fill(hot, 0.0).sum(0)
        return torch.log1p(pos).sum() / hot.any(0).sum().clamp(min=1) + torch.log1p(neg).mean()
