import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.GRU(8, 16, batch_first=True, bidirectional=True)
head = nn.Linear(32, 1)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
for step in range(120):
    sequences = torch.randn(32, 5, 8)
    target = sequences.sum((1, 2)).unsqueeze(1)
    _, state = encoder(sequences)
    loss = nn.functional.mse_loss(head(state.view(32, -1)), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1} loss {loss.item():.3f}")
