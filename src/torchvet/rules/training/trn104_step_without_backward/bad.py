import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU())
head = nn.Linear(64, 1)
encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
head_optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
truth = torch.randn(32, 1)
for step in range(40):
    inputs = torch.randn(128, 32)
    with torch.no_grad():
        features = encoder(inputs)
    loss = nn.functional.mse_loss(head(features), (inputs @ truth).abs())
    encoder_optimizer.zero_grad()
    head_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    head_optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
