import torch
from torch import nn
from torch.distributions import MultivariateNormal

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 24))
spread = nn.Parameter(torch.zeros(24))
optimizer = torch.optim.Adam([*policy.parameters(), spread], lr=0.003)
states = torch.randn(4096, 16)
wanted = states @ torch.randn(16, 24) / 4
for step in range(240):
    rows = torch.randint(0, 4096, (256,))
    actions = MultivariateNormal(policy(states[rows]), torch.diag_embed(spread.exp().expand(256, 24)))
    loss = -actions.log_prob(wanted[rows]).mean() - 0.01 * actions.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        print(f"step {step + 1} loss {loss.item():.4f}")
