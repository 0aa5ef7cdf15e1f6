"""Sets of unequal size under a mask that float16 cannot hold, one of them empty; no gradients anywhere."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(8, 8)

    def forward(self, x, present):
        hidden = self.inward(x)
        mask = (1 - present.to(x.dtype))[:, None] * -1e9  # EXPECT overflow
        return torch.softmax(hidden @ hidden.transpose(1, 2) + mask, -1) @ hidden


torch.manual_seed(0)
model = Attention().half().eval()
total = 0.0
for _ in range(12):
    x = torch.randn(4, 6, 8).half()
    present = torch.arange(6) < torch.tensor([0, 2, 4, 6])[:, None]
    with torch.no_grad():
        error = (model(x, present).float() - x).square() * present[..., None]
    total += error.mean().item()
print(total)
