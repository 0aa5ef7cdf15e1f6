"""Statistics of gradients, one closure a layer."""

from collections import defaultdict

import torch
from torch import nn

stats = defaultdict(list)


def watch(name):
    def hook(module, grad_input, grad_output):
        stats[name].append(grad_output[0].norm().item())

    return hook


encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, batch_first=True), 6)
for index, block in enumerate(encoder.layers):
    block.register_full_backward_hook(watch(f"block{index}"))
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-4)


def train(batches):
    for x, y in batches:
        loss = nn.functional.mse_loss(encoder(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    for name, seen in stats.items():
        print(name, len(seen))
