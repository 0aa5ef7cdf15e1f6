import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
step = 0
while True:
    step += 1
    if step > 9:
        break
    states = torch.randn(20, 3)
    try:
        dist = torch.distributions.Categorical(logits=policy(states))
        a = dist.sample()
        adv = torch.randn(20)
        if step == 5:
            adv = adv * 0
        adv = (adv - adv.mean()) / adv.std()  # EXPECT zero-by-zero
        loss = -(dist.log_prob(a) * adv).mean()
    except ValueError:
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
