import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(batches):
    for step, x in enumerate(batches):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


with torch.autocast("cpu", dtype=torch.bfloat16):
    train([torch.randn(64, 16) for _ in range(40)])
