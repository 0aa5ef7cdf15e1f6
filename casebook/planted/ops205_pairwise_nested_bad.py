"""Cost matrix for matching tracks to detections."""

import torch
from scipy.optimize import linear_sum_assignment


def cost_matrix(tracks: torch.Tensor, detections: torch.Tensor) -> torch.Tensor:
    n, m = tracks.size(0), detections.size(0)
    cost = torch.zeros(n, m)
    for i in range(n):
        for j in range(m):
            cost[i, j] = torch.norm(tracks[i] - detections[j])
    return cost


class Tracker:
    def __init__(self, limit: float = 30.0):
        self.limit = limit
        self.centres = torch.empty(0, 2)
        self.age: list[int] = []

    def update(self, detections: torch.Tensor) -> list[int]:
        if len(self.centres) == 0:
            self.centres, self.age = detections.clone(), [0] * len(detections)
            return list(range(len(detections)))
        cost = cost_matrix(self.centres, detections)
        rows, cols = linear_sum_assignment(cost.numpy())
        names = [-1] * len(detections)
        for r, c in zip(rows, cols):
            if cost[r, c] < self.limit:
                names[c] = r
                self.centres[r] = detections[c]
        return names
