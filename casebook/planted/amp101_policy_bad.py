"""PPO update with mixed precision; rollouts are collected elsewhere."""

from dataclasses import dataclass
from typing import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim


@dataclass
class PPOConfig:
    clip_ratio: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    grad_clip: float = 0.5
    epochs: int = 4


def optimise(
    loss: Tensor, opt: optim.Optimizer, amp_scaler: torch.amp.GradScaler, params: Iterable[nn.Parameter], clip: float
) -> None:
    """One optimiser step for `loss`."""
    opt.zero_grad()
    amp_scaler.scale(loss).backward()
    # gradients are divided by the scale inside step(), so it is fine to clip here
    torch.nn.utils.clip_grad_value_(params, clip)
    amp_scaler.step(opt)
    amp_scaler.update()


class ActorCritic(nn.Module):
    def __init__(self, obs_dim: int, n_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.pi = nn.Linear(256, n_actions)
        self.v = nn.Linear(256, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


def ppo_update(net: ActorCritic, opt: optim.Optimizer, scaler: torch.amp.GradScaler, batches, cfg: PPOConfig) -> None:
    for _ in range(cfg.epochs):
        for obs, act, old_logp, adv, ret in batches:
            with torch.autocast("cuda", dtype=torch.float16):
                logits, value = net(obs)
                logp_all = F.log_softmax(logits.float(), dim=-1)
                logp = logp_all.gather(-1, act.unsqueeze(-1)).squeeze(-1)
                ratio = (logp - old_logp).exp()
                clipped = ratio.clamp(1 - cfg.clip_ratio, 1 + cfg.clip_ratio)
                policy_loss = -torch.min(ratio * adv, clipped * adv).mean()
                value_loss = F.mse_loss(value.float(), ret)
                entropy = -(logp_all.exp() * logp_all).sum(-1).mean()
                total = policy_loss + cfg.value_coef * value_loss - cfg.entropy_coef * entropy
            optimise(total, opt, scaler, list(net.parameters()), cfg.grad_clip)


if __name__ == "__main__":
    device = torch.device("cuda")
    agent = ActorCritic(8, 4).to(device)
    adam = optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    grad_scaler = torch.amp.GradScaler("cuda")
    n = 2048
    data = [
        (
            torch.randn(n, 8, device=device),
            torch.randint(4, (n,), device=device),
            torch.zeros(n, device=device),
            torch.randn(n, device=device),
            torch.randn(n, device=device),
        )
    ]
    ppo_update(agent, adam, grad_scaler, data, PPOConfig())
