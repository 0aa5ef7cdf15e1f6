"""Vector quantiser with usage counters."""

import torch
import torch.nn.functional as F
from torch import nn


class Quantiser(nn.Module):
    def __init__(self, codes: int = 1024, dim: int = 64, decay: float = 0.99) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, dim))
        self.register_buffer("usage", torch.zeros(codes, dtype=torch.bfloat16))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bfloat16))

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = z.detach().float().reshape(-1, z.size(-1))
        idx = torch.cdist(flat, self.codebook).argmin(1)
        quant = self.codebook[idx].view_as(z)
        if self.training:
            self._track(idx)
        commit = F.mse_loss(z.float(), quant)
        return z + (quant - z).detach(), commit

    @torch.no_grad()
    def _track(self, idx: torch.Tensor) -> None:
        hist = torch.bincount(idx, minlength=len(self.codebook))
        self.usage += hist
        self.seen += 1

    def dead_codes(self) -> torch.Tensor:
        return (self.usage / self.seen.clamp(min=1) < 1e-3).nonzero().squeeze(1)


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(128, 64)
        self.q = Quantiser()
        self.dec = nn.Linear(64, 128)

    def forward(self, x):
        z, commit = self.q(self.enc(x))
        return self.dec(z), commit


def train(loader):
    ae = AutoEncoder().cuda()
    opt = torch.optim.Adam(ae.parameters(), lr=1e-3)
    for x in loader:
        x = x.cuda()
        rec, commit = ae(x)
        loss = F.mse_loss(rec, x) + 0.25 * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
