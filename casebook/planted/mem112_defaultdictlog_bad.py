from collections import defaultdict

import torch
import torch.nn.functional as F


class Logger:
    def __init__(self):
        self.scalars = defaultdict(list)

    def log(self, **kw):
        for k, v in kw.items():
            self.scalars[k].append(v)


def train_vqvae(model, loader, epochs, beta=0.25):
    opt = torch.optim.Adam(model.parameters(), lr=2e-4)
    log = Logger()
    history = {"rec": [], "commit": []}
    for epoch in range(epochs):
        for (x,) in loader:
            z = model.encode(x)
            q = model.quantise(z)
            out = model.decode(z + (q - z).detach())
            rec, commit = F.mse_loss(out, x), F.mse_loss(z, q.detach())
            loss = rec + F.mse_loss(q, z.detach()) + beta * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
            history["rec"].append(rec)
            history["commit"].append(commit)
        log.log(epoch=epoch, rec=float(history["rec"][-1]))
    return history
