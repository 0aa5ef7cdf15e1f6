import torch
from torch import nn

torch.manual_seed(0)
nodes, features, edges = 1200, torch.randn(1200, 32), (torch.rand(1200, 1200) < 0.01).float()
labels = torch.randint(4, (nodes,))


class Graph(nn.Module):
    def __init__(self, adjacency):
        super().__init__()
        self.adjacency = adjacency
        self.first, self.second = nn.Linear(32, 16), nn.Linear(16, 4)

    def spread(self):
        linked = self.adjacency + self.adjacency.T + torch.eye(nodes)
        scale = linked.sum(1).rsqrt()
        return scale[:, None] * linked * scale

    def forward(self, x):
        spread = self.spread()
        return spread @ self.second(torch.relu(spread @ self.first(x)))


model = Graph(edges)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(200):
    loss = nn.functional.cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f}")
