import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
truth = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(80):
    features = torch.randn(128, 16)
    target = (features @ truth).argmax(1)
    scores = functional.log_softmax(model(features), dim=0)
    loss = functional.nll_loss(scores, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        right = (scores.argmax(1) == target).float().mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} accuracy {right:.3f}")
