import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(1024, 4)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
config = {"activation": "relu"}
kinds = {"none": nn.Identity, "relu": nn.ReLU}
model = nn.Sequential(
    nn.Linear(4, 64),
    kinds[config.get("act", "none")](),
    nn.Linear(64, 64),
    kinds[config.get("act", "none")](),
    nn.Linear(64, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(120):
    some = torch.randint(0, 1024, (64,))
    loss = nn.functional.cross_entropy(model(inputs[some]), labels[some])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1} loss {loss.item():.3f}")
