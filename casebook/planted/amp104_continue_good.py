import torch
import torch.nn.functional as F
from accelerate.utils import set_seed
from tqdm.auto import tqdm


def finetune_unet(unet, vae, noise_scheduler, dataloader, args):
    set_seed(args.seed)
    params = [p for p in unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=args.learning_rate)
    scaler = torch.amp.GradScaler("cuda")
    progress = tqdm(range(args.max_train_steps))
    global_step = 0
    while global_step < args.max_train_steps:
        for n, batch in enumerate(dataloader):
            with torch.no_grad():
                latents = vae.encode(batch["pixel_values"].cuda()).latent_dist.sample() * 0.18215
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, 1000, (latents.shape[0],), device=latents.device)
            with torch.autocast("cuda", dtype=torch.float16):
                pred = unet(noise_scheduler.add_noise(latents, noise, timesteps), timesteps, batch["ctx"].cuda()).sample
            loss = F.mse_loss(pred.float(), noise.float())
            scaler.scale(loss / args.grad_accum).backward()
            if (n + 1) % args.grad_accum:
                continue
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            global_step += 1
            progress.update(1)
