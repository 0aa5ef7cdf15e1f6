import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_value_


def update(model, sc, opt, value):
    sc.scale(value).backward()
    clip_grad_value_(model.parameters(), 0.5)
    sc.step(opt)
    sc.update()


def main(model, loader, accumulate=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.cuda.amp.GradScaler()
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        update(model, scaler, optimizer, loss)
