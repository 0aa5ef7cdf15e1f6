import torch


class Corridor:
    """Many walkers at once; a step towards zero pays."""

    observation_size = 8
    actions = 3

    def __init__(self, parallel):
        self.parallel = parallel
        self.position = torch.zeros(parallel)

    def reset(self):
        self.position = torch.randn(self.parallel) * 3
        return self.observe()

    def observe(self):
        powers = torch.arange(1, self.observation_size + 1)
        return torch.sin(self.position[:, None] / powers)

    def step(self, action):
        before = self.position.abs()
        self.position = self.position + (action.float() - 1) * 0.5 + torch.randn(self.parallel) * 0.05
        return self.observe(), before - self.position.abs()
