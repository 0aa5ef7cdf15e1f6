import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
activations = []


def record(module, inputs, output):
    activations.append(output.detach())


model[1].register_forward_hook(record)
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        share = (activations[-1] == 0).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} inactive {share:.4f}")
