import torch
import torch.nn as nn
import torch.nn.functional as F


class ReplayMemory:
    def __init__(self, capacity, obs_shape, device):
        self.obs = torch.zeros((capacity, *obs_shape), dtype=torch.uint8, device=device)
        self.act = torch.zeros(capacity, dtype=torch.long, device=device)
        self.rew = torch.zeros(capacity, device=device)
        self.done = torch.zeros(capacity, device=device)
        self.size = 0

    def sample(self, n):
        i = torch.randint(self.size - 1, (n,), device=self.obs.device)
        return self.obs[i], self.act[i], self.rew[i], self.obs[i + 1], self.done[i]


class DQN(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()
        )
        self.head = nn.Linear(3136, actions)

    def forward(self, x):
        return self.head(self.conv(x / 255.0).flatten(1))


def optimize_model(policy_net, target_net, memory, optimizer, scaler=None, gamma=0.99, batch_size=32):
    obs, act, rew, nxt, done = memory.sample(batch_size)
    with torch.autocast("cuda", dtype=torch.float16):
        q = policy_net(obs).gather(1, act[:, None]).squeeze(1)
        with torch.no_grad():
            target = rew + gamma * (1 - done) * target_net(nxt).max(1).values
        loss = F.smooth_l1_loss(q.float(), target.float())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.detach()


def main(env_steps=1_000_000, actions=6):
    policy_net, target_net = DQN(actions).cuda(), DQN(actions).cuda()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = torch.optim.RMSprop(policy_net.parameters(), lr=2.5e-4, eps=0.01)
    memory = ReplayMemory(100_000, (4, 84, 84), "cuda")
    for step in range(env_steps):
        memory.size = min(memory.size + 1, 100_000)
        if memory.size > 1000 and step % 4 == 0:
            optimize_model(policy_net, target_net, memory, optimizer)
        if step % 10_000 == 0:
            target_net.load_state_dict(policy_net.state_dict())
