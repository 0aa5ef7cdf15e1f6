import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = torch.sin(inputs @ torch.randn(8, 4) / 3).unbind(1)
body = nn.Sequential(nn.Linear(8, 64), nn.Tanh())
heads = nn.ModuleList([nn.Linear(64, 1)] * 4)
optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=0.01)
for step in range(120):
    some = torch.randint(0, 512, (64,))
    hidden = body(inputs[some])
    losses = [
        nn.functional.mse_loss(head(hidden).squeeze(1), target[some])
        for head, target in zip(heads, targets, strict=True)
    ]
    loss = sum(losses)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1} loss {loss.item():.3f}")
