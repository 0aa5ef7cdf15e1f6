import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotation = torch.randn(8, 8) / 8**0.5
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.tanh(x @ self.rotation))


torch.manual_seed(0)
model = Net().double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 8, dtype=torch.float64)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
