import io

import torch
from torch import nn

torch.manual_seed(0)


def train(checkpoint, steps):
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu")
    if checkpoint is not None:
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(steps):
        x = torch.randn(64, 16)
        with torch.autocast("cpu", torch.float16):
            loss = (model(x).float() - x.sum(1, keepdim=True)).pow(2).sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 5 == 4:
            print(f"step {step + 1} loss {loss.item():.4f}")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


train(train(None, 10), 10)
