import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


torch.manual_seed(0)
blocks = nn.ModuleList([Block(128) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
for step in range(20):
    x = torch.randn(4096, 128, device="cuda")
    for block in blocks:
        x = block(x)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
