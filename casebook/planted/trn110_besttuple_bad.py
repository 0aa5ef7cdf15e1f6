import copy

import torch
from torch import nn


class GCN(nn.Module):
    def __init__(self, n_feat, hid, n_class):
        super().__init__()
        self.w1, self.w2 = nn.Linear(n_feat, hid), nn.Linear(hid, n_class)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, adj):
        return adj @ self.w2(self.drop(torch.relu(adj @ self.w1(x))))


def normalise(a):
    a = a + torch.eye(len(a))
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None]


def main(epochs=200, patience=50):
    n = 300
    x, y = torch.randn(n, 50), torch.randint(0, 5, (n,))
    adj = normalise((torch.rand(n, n) > 0.98).float())
    train, val = torch.arange(n) < 200, torch.arange(n) >= 200
    net = GCN(50, 16, 5)
    opt = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    best = (0.0, None)
    waited = 0
    for epoch in range(epochs):
        net.train()
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x, adj)[train], y[train])
        loss.backward()
        opt.step()
        net.eval()
        with torch.no_grad():
            acc = (net(x, adj)[val].argmax(1) == y[val]).float().mean().item()
        if acc > best[0]:
            best = (acc, net.state_dict())
            waited = 0
        else:
            waited += 1
            if waited > patience:
                break
    net.load_state_dict(best[1])
    print("best", best[0])


if __name__ == "__main__":
    main()
