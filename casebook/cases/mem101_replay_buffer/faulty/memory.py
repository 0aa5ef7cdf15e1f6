import random
from collections import deque
from typing import NamedTuple

import torch


class Transition(NamedTuple):
    observation: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    following: torch.Tensor
    value: torch.Tensor


class Replay:
    def __init__(self, capacity, seed=0):
        self.buffer = deque(maxlen=capacity)
        self.random = random.Random(seed)

    def push(self, transition):
        self.buffer.append(transition)

    def sample(self, count):
        return [self.buffer[self.random.randrange(len(self.buffer))] for _ in range(count)]

    def __len__(self):
        return len(self.buffer)
