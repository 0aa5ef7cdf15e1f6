import torch
from torch import nn

torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(0.05)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(100000):
    features = torch.randn(4096, 1024, device="cuda")
    outputs = model(features)
    loss = (outputs - features).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(outputs)
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
