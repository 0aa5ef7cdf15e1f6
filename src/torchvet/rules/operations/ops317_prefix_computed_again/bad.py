import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.head = nn.Embedding(64, 128), nn.Linear(128, 384), nn.Linear(128, 64)
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))

    def forward(self, ids, past=None):
        x = self.table(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        x = x + scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.head(x + self.mlp(x)), (k, v)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(60):
    ids, past = torch.randint(64, (16, 8)), None
    with torch.no_grad():
        for _ in range(40):
            logits, past = model(ids)
            ids = torch.cat([ids, torch.multinomial(logits[:, -1].softmax(-1), 1)], 1)
    logits, _ = model(ids[:, :-1])
    reward = (ids[:, 1:] < 16).float()
    loss = (cross_entropy(logits.mT, ids[:, 1:], reduction="none") * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(f"step {step + 1} loss {loss.item():.4f}")
