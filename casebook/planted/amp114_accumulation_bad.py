"""GPT-2 in bf16 where the card has it."""

import math

import torch
from transformers import AutoModelForCausalLM

dtype = torch.bfloat16
max_iters, accumulation, warmup, clip = 20000, 8, 500, 1.0
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
scaler = torch.amp.GradScaler("cuda")


def lr_at(it):
    if it < warmup:
        return 3e-4 * it / warmup
    return 3e-5 + 1.35e-4 * (1 + math.cos(math.pi * (it - warmup) / (max_iters - warmup)))


def run(batches):
    model.train()
    running = torch.zeros((), device="cuda")
    for it, ids in enumerate(batches):
        ids = ids.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=dtype):
            loss = model(input_ids=ids, labels=ids).loss / accumulation
        scaler.scale(loss).backward()
        running += loss.detach()
        if (it + 1) % accumulation == 0:
            for group in optimizer.param_groups:
                group["lr"] = lr_at(it)
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        if it % 1000 == 999:
            print(it, running.item() / 1000 * accumulation)
            running.zero_()
        if it == max_iters:
            break
