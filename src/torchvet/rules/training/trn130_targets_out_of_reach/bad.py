import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(512, 6)
change = inputs[:, 0] - 0.5 * inputs[:, 1] * inputs[:, 2]
model = nn.Sequential(
    nn.Linear(6, 64),
    nn.ReLU(),
    nn.Linear(64, 1),
    nn.ReLU(),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(120):
    some = torch.randint(0, 512, (64,))
    loss = nn.functional.mse_loss(model(inputs[some]).squeeze(1), change[some])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1} loss {loss.item():.3f}")
