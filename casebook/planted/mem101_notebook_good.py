# %%
import copy

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# %%
X, y = torch.randn(20000, 32), torch.randn(20000, 1)
train_dl = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(X[:16000], y[:16000]), batch_size=256, shuffle=True
)
test_dl = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X[16000:], y[16000:]), batch_size=256)

# %%
mlp = nn.Sequential(nn.Linear(32, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))
opt = torch.optim.AdamW(mlp.parameters(), lr=3e-4)
history = {"train": [], "test": []}
best = float("inf")

# %%
for epoch in range(50):
    mlp.train()
    for xb, yb in train_dl:
        loss = F.mse_loss(mlp(xb), yb)
        loss.backward()
        opt.step()
        opt.zero_grad()
        history["train"].append(loss.item())
    mlp.eval()
    for xb, yb in test_dl:
        with torch.no_grad():
            loss = F.mse_loss(mlp(xb), yb)
        history["test"].append(loss.detach())
    latest = float(history["test"][-1])
    if latest < best:
        best, weights = latest, copy.deepcopy(mlp.state_dict())

# %%
plt.plot(np.array([float(v) for v in history["test"]]))
plt.savefig("history.png")
