import threading
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def work(x, losses):
    losses.append(nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)))


for step in range(40):
    losses = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        thread = threading.Thread(target=work, args=(torch.randn(64, 16), losses))
        thread.start()
        thread.join()
    optimizer.zero_grad()
    losses[0].backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {losses[0].item():.5f}")
