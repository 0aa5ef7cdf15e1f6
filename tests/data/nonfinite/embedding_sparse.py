import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(20, 4, sparse=True)
opt = torch.optim.SparseAdam(emb.parameters())
for i in range(8):
    e = emb(torch.randint(0, 20, (5,)))
    d = e - e.detach() if i == 5 else e
    loss = d.abs().sum(1).pow(0.5).mean()  # EXPECT power-gradient-at-zero
    opt.zero_grad()
    loss.backward()
    opt.step()
