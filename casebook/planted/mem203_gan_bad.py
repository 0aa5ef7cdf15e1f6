"""A GAN whose gradients are zeroed in place."""

import torch
import torch.nn.functional as F


def step(generator, discriminator, g_opt, d_opt, real, latent=128):
    noise = torch.randn(real.size(0), latent, device=real.device)
    fake = generator(noise)

    d_opt.zero_grad(set_to_none=False)
    d_loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
    d_loss.backward()
    d_opt.step()

    g_opt.zero_grad(set_to_none=False)
    g_loss = F.softplus(-discriminator(fake)).mean()
    g_loss.backward()
    g_opt.step()
    return d_loss.item(), g_loss.item()
