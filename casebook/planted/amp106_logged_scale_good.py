import torch
from torch import nn


def fit(gen, crit, loader, lr=1e-4, n_critic=5):
    opt_g = torch.optim.Adam(gen.parameters(), lr=lr, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(crit.parameters(), lr=lr, betas=(0.5, 0.9))
    scaler_g, scaler_c = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
    for i, (real, _) in enumerate(loader):
        real = real.cuda()
        z = torch.randn(len(real), 128, device="cuda")
        with torch.autocast("cuda"):
            fake = gen(z).detach()
            loss_c = crit(fake).mean() - crit(real).mean()
        opt_c.zero_grad()
        scaler_c.scale(loss_c).backward()
        scaler_c.step(opt_c)
        scaler_c.update()
        if i % n_critic == 0:
            with torch.autocast("cuda"):
                loss_g = -crit(gen(z)).mean()
            opt_g.zero_grad()
            scaler_g.scale(loss_g).backward()
            scaler_g.step(opt_g)
            scaler_g.update()
            print(f"scale {scaler_g.get_scale()}")


def main(loader):
    gen = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 784)).cuda()
    crit = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).cuda()
    fit(gen, crit, loader)
