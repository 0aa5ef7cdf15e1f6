"""Pointer network; visited cities are masked."""

import torch
from torch import nn


class Pointer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, query, cities, visited):
        score = torch.einsum("bd,bnd->bn", self.q(query), self.k(cities))
        return score.masked_fill(visited, float("-inf")).softmax(-1)


@torch.no_grad()
def tour(net, cities):
    with torch.autocast("cuda", dtype=torch.float16):
        visited = torch.zeros(cities.shape[:2], dtype=torch.bool, device=cities.device)
        here = cities[:, 0]
        order = []
        for _ in range(cities.shape[1]):
            nxt = net(here, cities, visited).argmax(-1)
            visited = visited.scatter(1, nxt[:, None], True)
            here = cities[torch.arange(len(cities)), nxt]
            order.append(nxt)
    return torch.stack(order, 1)


if __name__ == "__main__":
    pointer = Pointer(64).cuda()
    print(tour(pointer, torch.randn(2, 20, 64, device="cuda")))
