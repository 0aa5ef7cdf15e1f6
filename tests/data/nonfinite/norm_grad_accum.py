import torch
from torch import nn

torch.manual_seed(1)
model = nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    opt.zero_grad()
    for micro in range(3):
        x = torch.randn(8, 4)
        out = model(x)
        delta = out - out.detach() if step == 4 else out
        penalty = delta.norm(dim=1).mean()  # OK
        if step == 4:
            penalty = torch.linalg.vector_norm(delta, dim=1) ** 0.5  # EXPECT power-gradient-at-zero
            penalty = penalty.mean()
        loss = (out.square().mean() + penalty) / 3
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
