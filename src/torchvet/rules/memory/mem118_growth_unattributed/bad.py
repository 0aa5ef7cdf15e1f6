import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(128, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
packed = []
for step in range(80):
    x = torch.randn(64, 128)
    hidden = torch.relu(encoder(x))
    loss = nn.functional.mse_loss(head(hidden), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    packed.append(hidden.detach().numpy().tobytes())
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
