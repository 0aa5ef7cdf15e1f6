import torch
from torch import nn

torch.manual_seed(0)
heads, width, length = 4, 16, 512
words, head = nn.Embedding(100, heads * width), nn.Linear(heads * width, 100)
optimizer = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.1)
angles = torch.arange(length) / 100 ** (torch.arange(width // 2)[:, None] / width)


def rotated(x):
    even, odd = x.transpose(-1, -2).unflatten(-2, (2, -1)).unbind(-3)
    turned = [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()]
    return torch.cat(turned, dim=-2).transpose(-1, -2)


for step in range(80):
    x = torch.randint(100, (2, length + 1))
    states = words(x[:, :-1]).unflatten(-1, (heads, width)).transpose(1, 2)
    turned = rotated(states)
    mixed = nn.functional.scaled_dot_product_attention(turned, turned, states, is_causal=True)
    logits = head(mixed.transpose(1, 2).flatten(2))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
