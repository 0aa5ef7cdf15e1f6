"""Voice conversion: one switch turns on bf16 and, needlessly, a scaler."""

import json
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F


def settings(path):
    with open(path) as f:
        return json.load(f, object_hook=lambda d: SimpleNamespace(**d))


def run(generator, loader, hps):
    optim_g = torch.optim.AdamW(generator.parameters(), hps.train.learning_rate, betas=hps.train.betas)
    scaler = torch.amp.GradScaler("cuda", enabled=hps.train.bf16_run)
    for epoch in range(hps.train.epochs):
        for spec, wave in loader:
            spec, wave = spec.cuda(non_blocking=True), wave.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=hps.train.bf16_run):
                made = generator(spec)
            loss = F.l1_loss(made.float(), wave)
            optim_g.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optim_g)
            scaler.update()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    net = torch.nn.ConvTranspose1d(80, 1, 256, stride=256).cuda()
    run(net, [(torch.randn(4, 80, 32), torch.randn(4, 1, 8192))], settings(sys.argv[1]))
