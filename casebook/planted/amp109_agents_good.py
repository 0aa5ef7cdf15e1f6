"""Multi-agent actor-critic; each agent has its own optimiser, all share a world model loss."""

from typing import Dict, List

import torch
import torch.nn as nn
from torch.optim import Adam, Optimizer


class MultiAgent:
    def __init__(self, agents: Dict[str, nn.Module], world: nn.Module, lr: float = 3e-4):
        self.agents = nn.ModuleDict(agents).cuda()
        self.world = world.cuda()
        self.optimizers: List[Optimizer] = [Adam(a.parameters(), lr=lr) for a in self.agents.values()]
        self.optimizers.append(Adam(self.world.parameters(), lr=lr / 3))
        self.amp = torch.amp.GradScaler("cuda")

    def losses(self, batch):
        state = self.world(batch["obs"])
        out = 0.0
        for name, agent in self.agents.items():
            q = agent(state)
            td = q.gather(1, batch[name]["action"]) - batch[name]["target"]
            out = out + td.float().square().mean()
        return out

    def learn(self, batch):
        for opt in self.optimizers:
            opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.losses(batch)
        self.amp.scale(loss).backward()
        for opt in self.optimizers:
            self.amp.step(opt)
        self.amp.update()
        return loss.detach()


def main(buffer, iterations=100_000):
    world = nn.Sequential(nn.Linear(64, 128), nn.ELU())
    team = MultiAgent({"a": nn.Linear(128, 5), "b": nn.Linear(128, 5)}, world)
    for it in range(iterations):
        loss = team.learn(buffer.sample(256))
        if it % 1000 == 0:
            print(it, float(loss))
