import torch
from torch import nn

torch.manual_seed(0)
following = torch.randperm(20)
texts = torch.randint(0, 20, (512, 17))
for t in range(1, 17):
    texts[:, t] = torch.where(torch.rand(512) < 0.1, texts[:, t], following[texts[:, t - 1]])
tokens, labels = texts[:, :-1], texts[:, 1:]
table, layer, head = nn.Embedding(20, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, 20)
optimizer = torch.optim.Adam(nn.ModuleList([table, layer, head]).parameters(), lr=0.01)


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


for step in range(100):
    some = torch.randint(0, 512, (32,))
    logits = head(layer(table(tokens[some]))[0])
    loss = loss_of(logits, labels[some])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        right = (logits.argmax(-1) == following[tokens[some]]).float().mean()
        print(f"step {step + 1} loss {loss.item():.3f} right next tokens {right.item():.2f}")
