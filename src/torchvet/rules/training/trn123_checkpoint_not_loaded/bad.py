import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)


def fit(model, steps, name):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.02)
    for step in range(steps):
        features = torch.randn(128, 16)
        loss = nn.functional.mse_loss(model(features), features @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"{name} step {step + 1} loss {loss.item():.4f}")


body = nn.Sequential(nn.Linear(16, 64), nn.Tanh())
trained = nn.ModuleDict({"body": body, "head": nn.Linear(64, 1)})
fit(nn.Sequential(trained["body"], trained["head"]), 80, "first")
body = nn.Sequential(nn.Linear(16, 64), nn.Tanh())
weights = trained.state_dict()
body.load_state_dict(weights, strict=False)
fit(nn.Sequential(body.requires_grad_(False), nn.Linear(64, 1)), 80, "second")
