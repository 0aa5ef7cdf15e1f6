import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
X = torch.randn(5000, 10)
y = X.pow(2).sum(dim=1)
if __name__ == "__main__":
    for i in range(200):
        perm = torch.randperm(len(X))[:1000]
        pred = net(X[perm])
        loss = F.mse_loss(pred.view(-1), y[perm])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 50 == 0:
            print(i, loss.item())
