"""The encoder."""

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden):
        variance = hidden.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.eps))


class DenseReluDense(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.wi = nn.Linear(width, inner, bias=False)
        self.wo = nn.Linear(inner, width, bias=False)

    def forward(self, hidden):
        hidden = nn.functional.relu(self.wi(hidden))
        return self.wo(hidden)


class Layer(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.mix = nn.Linear(width, width)
        self.feed_forward = DenseReluDense(width, inner)

    def forward(self, hidden):
        normed = self.norm1(hidden)
        hidden = hidden + self.mix(normed + normed.mean(1, keepdim=True))
        return hidden + self.feed_forward(self.norm2(hidden))


class Encoder(nn.Module):
    def __init__(self, vocabulary=64, width=32, inner=128, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, inner) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden)[:, :-1].mean(1))


def load_pretrained(model):
    """Weights as a long pre-training in bfloat16 leaves them: the last token's rows have grown large."""
    with torch.no_grad():
        model.embedding.weight[1] = 0
        model.embedding.weight[1, 0] = 400.0
        last = model.layers[-1].feed_forward
        last.wi.weight[:64, 0] = 30.0
        last.wo.weight[3, :64] = 8.0
        model.layers[-1].norm2.weight[0] = 2.0
    return model
