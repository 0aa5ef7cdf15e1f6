import torch


def train_one_epoch(model, optimizer, loader, device, accumulate=4):
    model.train()
    for i, (images, targets) in enumerate(loader):
        images = [im.to(device) for im in images]
        loss_dict = model(images, targets)
        losses = sum(l for l in loss_dict.values())
        (losses / accumulate).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
