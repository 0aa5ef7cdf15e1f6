import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 3)

    def forward(self, x):
        logits = self.l(x)
        probs = torch.softmax(logits, dim=-1)
        return logits, probs


net = Net()
opt = torch.optim.Adam(net.parameters())
ce = nn.CrossEntropyLoss()
for _ in range(10):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    logits, probs = net(x)
    loss = ce(probs, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
