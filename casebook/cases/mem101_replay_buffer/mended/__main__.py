import argparse

import torch

from .agent import Agent
from .world import Corridor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    world = Corridor(parallel=64)
    agent = Agent(world.observation_size, world.actions)
    observation = world.reset()
    for step in range(args.steps):
        action = agent.act(observation)
        following, reward = world.step(action)
        agent.remember(observation, action, reward, following)
        loss = agent.learn()
        observation = following
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} reward {reward.mean().item():.3f} loss {loss:.4f}")


if __name__ == "__main__":
    main()
