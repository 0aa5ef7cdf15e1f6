import torch
import torch.nn as nn
from torch.utils.tensorboard import SummaryWriter


def total_norm(parameters, norm_type=2.0):
    grads = [p.grad for p in parameters if p.grad is not None]
    return torch.norm(torch.stack([torch.norm(g.detach(), norm_type) for g in grads]), norm_type)


def train(model, loader, writer: SummaryWriter, epochs=5):
    model = model.to("cuda")
    opt = torch.optim.Adam(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    step = 0
    for _ in range(epochs):
        for wav, target in loader:
            wav, target = wav.to("cuda"), target.to("cuda")
            with torch.autocast("cuda"):
                out = model(wav)
                loss = nn.functional.l1_loss(out, target)
            opt.zero_grad()
            scaler.scale(loss).backward()
            if step % 100 == 0:
                writer.add_scalar("grad/norm", total_norm(model.parameters()), step)
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 3.0)
            scaler.step(opt)
            scaler.update()
            step += 1


if __name__ == "__main__":
    net = nn.Sequential(nn.Conv1d(1, 32, 9, padding=4), nn.Tanh(), nn.Conv1d(32, 1, 9, padding=4))
    batches = [(torch.randn(4, 1, 8000), torch.randn(4, 1, 8000)) for _ in range(100)]
    train(net, batches, SummaryWriter("runs/enh"))
