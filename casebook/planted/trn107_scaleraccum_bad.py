import torch


def train(model, loader, optimizer, scaler, args):
    model.train()
    optimizer.zero_grad(set_to_none=True)
    for i, batch in enumerate(loader):
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            loss = model(**batch)["loss"]
        scaler.scale(loss).backward()
        if (i + 1) % args.gradient_accumulation_steps == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
