import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, features):
        return self.head(self.body(features))


torch.manual_seed(0)
model = Classifier(classes=1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(64, 4)
for step in range(40):
    features = torch.randn(128, 32)
    loss = nn.functional.cross_entropy(model(features), features[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
