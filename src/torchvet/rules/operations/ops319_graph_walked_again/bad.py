import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh()]
trunk = nn.Sequential(*layers)
heads = nn.ModuleList([nn.Linear(512, classes) for classes in (4, 6, 8)])
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
for step in range(240):
    x = torch.randn(128, 64)
    features = trunk(x)
    targets = [x[:, : head.out_features].argmax(1) for head in heads]
    losses = [nn.functional.cross_entropy(head(features), y) for head, y in zip(heads, targets)]
    optimizer.zero_grad()
    for loss in losses:
        loss.backward(retain_graph=True)
    optimizer.step()
    if step % 60 == 59:
        print(f"step {step + 1} loss {sum(losses).item():.4f}")
