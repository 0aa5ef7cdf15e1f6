import torch
from torch import nn

torch.manual_seed(0)
sequences = torch.randint(0, 9, (512, 7))
label = (sequences == 3).any(1) & (sequences == 5).any(1)
table, layer = nn.Embedding(9, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
head = nn.Linear(16, 2)
optimizer = torch.optim.Adam(nn.ModuleList([table, layer, head]).parameters(), lr=0.01)
for epoch in range(15):
    order = torch.randperm(512)
    for step in range(16):
        some = order[step * 32 : step * 32 + 32]
        states = layer(table(sequences[some]))
        loss = nn.functional.cross_entropy(head(states[:, 0]), label[some].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1} loss {loss.item():.3f}")
