import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(10, 5)
opt = torch.optim.Adam(emb.parameters())


def angle(a, b):
    cos = nn.functional.cosine_similarity(a, b)
    return torch.acos(cos)  # EXPECT domain


for step in range(8):
    i = torch.randint(0, 10, (6,))
    j = (i + 1) % 10
    if step == 4:
        j[0] = i[0]
    a, b = emb(i), emb(j)
    loss = angle(a, b).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
