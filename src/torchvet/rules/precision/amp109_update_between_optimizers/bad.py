import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
decoder = nn.Linear(64, 1)
encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
decoder_optimizer = torch.optim.SGD(decoder.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", growth_interval=4)
for step in range(40):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(decoder(encoder(x)).float(), x.sum(1, keepdim=True))
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(encoder_optimizer)
    scaler.update()
    scaler.step(decoder_optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
