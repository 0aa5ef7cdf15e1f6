import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(1000, 64, padding_idx=0)
memory, head = nn.GRU(64, 64, batch_first=True), nn.Linear(64, 2)
optimizer = torch.optim.SGD([*words.parameters(), *memory.parameters(), *head.parameters()], lr=0.1)
for step in range(120):
    lengths = torch.randint(8, 33, (16,))
    x = torch.randint(1, 1000, (16, 128))
    x[torch.arange(128) >= lengths[:, None]] = 0
    states = memory(words(x))[0]
    last = states[torch.arange(16), lengths - 1]
    loss = nn.functional.cross_entropy(head(last), x[:, 0] % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(f"step {step + 1} loss {loss.item():.4f}")
