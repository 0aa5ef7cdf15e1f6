"""A model that a caller makes on the CPU, trained under CUDA's autocast in a function of a function."""

import torch
from torch import nn


def forward(net, images):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return net(images)


def train(model, batches, optimizer):
    for images, labels in batches:
        loss = nn.functional.cross_entropy(forward(model, images).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    batches = [(torch.randn(16, 32), torch.randint(10, (16,))) for _ in range(20)]
    train(network, batches, optimizer)


if __name__ == "__main__":
    main()
