"""Policy gradients on a bandit with contexts; advantages are normalised over the mini-batch."""

import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import BatchSampler, SubsetRandomSampler


@dataclass
class Rollout:
    observations: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    returns: torch.Tensor
    values: torch.Tensor


class ActorCritic(nn.Module):
    def __init__(self, contexts=8, arms=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(contexts, 64), nn.Tanh())
        self.actor = nn.Linear(64, arms)
        self.critic = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


class PPO:
    def __init__(self, policy, batch_size=32, clip=0.2, lr=3e-3):
        self.policy, self.batch_size, self.clip = policy, batch_size, clip
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    @torch.no_grad()
    def collect(self, count):
        x = torch.randn(count, 8)
        distribution, values = self.policy(x)
        actions = distribution.sample()
        rewards = (x[:, :4].argmax(1) == actions).float()
        return Rollout(x, actions, distribution.log_prob(actions), rewards, values)

    def update(self, rollout):
        order = SubsetRandomSampler(range(len(rollout.actions)))
        for index in BatchSampler(order, self.batch_size, drop_last=True):
            advantages = rollout.returns[index] - rollout.values[index]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            distribution, values = self.policy(rollout.observations[index])
            ratio = (distribution.log_prob(rollout.actions[index]) - rollout.log_probs[index]).exp()
            clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
            policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            value_loss = nn.functional.mse_loss(values, rollout.returns[index])
            loss = policy_loss + 0.5 * value_loss - 0.01 * distribution.entropy().mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    agent = PPO(ActorCritic())
    try:
        for iteration in range(1, args.steps // 5 + 1):
            rollout = agent.collect(129)
            agent.update(rollout)
            if iteration % 2 == 0:
                print(f"iteration {iteration}: mean reward {rollout.returns.mean():.2f}")
    except ValueError as error:
        print(f"stopped: {str(error).splitlines()[0]}")
        return
    print(f"weights finite: {all(p.isfinite().all().item() for p in agent.policy.parameters())}")


if __name__ == "__main__":
    main()
