"""Question answering over a small graph: attention over neighbours with a softmax of its own."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def masked_softmax(scores, mask):
    return torch.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1)


class GraphAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, nodes, adjacency):
        scores = self.query(nodes) @ self.key(nodes).transpose(-1, -2)
        return torch.relu(masked_softmax(scores, adjacency) @ self.value(nodes)) + nodes


class GraphReader(nn.Module):
    def __init__(self, features=12, width=48, layers=3):
        super().__init__()
        self.inward = nn.Linear(features, width)
        self.layers = nn.ModuleList([GraphAttention(width) for _ in range(layers)])
        self.outward = nn.Linear(width, 3)

    def forward(self, nodes, adjacency):
        hidden = self.inward(nodes)
        for layer in self.layers:
            hidden = layer(hidden, adjacency)
        return self.outward(hidden.mean(1))


def graphs(count):
    nodes = 5 * torch.randn(count, 10, 12)
    adjacency = (torch.rand(count, 10, 10) < 0.3).float()
    adjacency = ((adjacency + adjacency.transpose(1, 2) + torch.eye(10)) > 0).float()
    return TensorDataset(nodes, adjacency, nodes.mean(1)[:, :3].argmax(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GraphReader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (nodes, adjacency, answer) in enumerate(DataLoader(graphs(args.steps * 32), batch_size=32), start=1):
        loss = nn.functional.cross_entropy(model(nodes, adjacency), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print("step", step, "loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
