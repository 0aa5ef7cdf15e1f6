"""A training step of 100 ms or more: a transformer encoder with AdamW."""

import torch
from clock import timed
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x, y = torch.randn(4, 128, 256), torch.randint(0, 64, (4 * 128,))


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).view(-1, 64), y)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    timed(step, steps=40)
