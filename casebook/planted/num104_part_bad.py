"""Textual inversion of a diffusion text encoder."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from transformers import CLIPTextModel, CLIPTokenizer


@dataclass
class Args:
    base: str = "runwayml/stable-diffusion-v1-5"
    lr: float = 5e-4
    steps: int = 3000
    weight_dtype: torch.dtype = torch.float16


def train(loader, args: Args = Args()):
    tokenizer = CLIPTokenizer.from_pretrained(args.base, subfolder="tokenizer")
    noise_scheduler = DDPMScheduler.from_pretrained(args.base, subfolder="scheduler")
    vae = AutoencoderKL.from_pretrained(args.base, subfolder="vae", torch_dtype=torch.float16).to("cuda")
    unet = UNet2DConditionModel.from_pretrained(args.base, subfolder="unet", torch_dtype=torch.float16).to("cuda")
    text_encoder = CLIPTextModel.from_pretrained(args.base, subfolder="text_encoder", torch_dtype=torch.float16)
    text_encoder.to("cuda")
    vae.requires_grad_(False)
    unet.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        [{"params": text_encoder.get_input_embeddings().parameters(), "weight_decay": 0.0}], lr=args.lr
    )
    for step, batch in zip(range(args.steps), loader):
        with torch.no_grad():
            latents = vae.encode(batch["pixels"].cuda().half()).latent_dist.sample() * 0.18215
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (latents.shape[0],), device="cuda")
        noisy = noise_scheduler.add_noise(latents, noise, t)
        ids = tokenizer(batch["caption"], padding="max_length", return_tensors="pt").input_ids.cuda()
        cond = text_encoder(ids)[0].to(dtype=args.weight_dtype)
        pred = unet(noisy, t, cond).sample
        loss = F.mse_loss(pred.float(), noise.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(step, loss.detach().item())
