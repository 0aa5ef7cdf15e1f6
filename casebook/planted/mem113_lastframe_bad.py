import collections

import torch
from torch import nn


class FrameQueue:
    """Remembers the newest frame of each camera, for warm starts."""

    def __init__(self):
        self.newest = {}

    def push(self, camera: str, clip: torch.Tensor):
        # clip: (T, C, H, W); the other frames may go
        self.newest[camera] = clip[-1]

    def get(self, camera):
        return self.newest.get(camera)


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(6, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()
        )
        self.box = nn.Linear(64, 4)

    def forward(self, a, b):
        return self.box(self.backbone(torch.cat([a, b], 1)).mean((2, 3)))


@torch.no_grad()
def follow(tracker, streams, frames_per_clip=64):
    queue, boxes = FrameQueue(), collections.Counter()
    for camera in streams:
        clip = torch.rand(frames_per_clip, 3, 256, 256)
        start = queue.get(camera)
        prev = clip[0] if start is None else start
        for frame in clip:
            tracker(prev[None], frame[None])
            prev = frame
            boxes[camera] += 1
        queue.push(camera, clip)
    return boxes


if __name__ == "__main__":
    net = Tracker().eval()
    print(follow(net, [f"cam{i}" for i in range(3)]))
