"""Cost matrix for matching tracks to detections."""

import torch
from scipy.optimize import linear_sum_assignment


def cost_matrix(tracks: torch.Tensor, detections: torch.Tensor) -> torch.Tensor:
    return torch.cdist(tracks, detections)


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
        near = (cost < self.limit).tolist()
        for r, c in zip(rows, cols):
            if near[r][c]:
                names[c] = r
                self.centres[r] = detections[c]
        return names
