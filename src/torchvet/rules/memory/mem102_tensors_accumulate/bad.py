import torch
from torch import nn


class Accuracy:
    def __init__(self):
        self.outputs = []
        self.targets = []

    def update(self, logits, target):
        self.outputs.append(logits.detach())
        self.targets.append(target)

    def value(self):
        return (torch.cat(self.outputs).argmax(1) == torch.cat(self.targets)).float().mean().item()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 100))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accuracy = Accuracy()
for step in range(40):
    features, target = torch.randn(512, 64), torch.randint(0, 100, (512,))
    logits = model(features)
    loss = nn.functional.cross_entropy(logits, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    accuracy.update(logits, target)
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} accuracy {accuracy.value():.4f}")
