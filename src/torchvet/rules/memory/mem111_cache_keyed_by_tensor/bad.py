from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=None)
def causal_mask(tokens):
    length = tokens.shape[1]
    return torch.triu(torch.full((length, length), float("-inf")), diagonal=1)


torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(32, nhead=2, dim_feedforward=64, dropout=0.0, batch_first=True)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(40):
    tokens, target = torch.randn(2, 192, 32), torch.randn(2, 192, 32)
    output = layer(tokens, src_mask=causal_mask(tokens))
    loss = nn.functional.mse_loss(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
