# %%
import torch
import torch.nn as nn

encoder = nn.Sequential(nn.Conv1d(1, 64, 9, stride=4), nn.GELU(), nn.Conv1d(64, 256, 9, stride=4)).cuda()
head = nn.Linear(256, 12).cuda()
params = [*encoder.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=1e-3)
# %%
for epoch in range(20):
    for wave, label in train_dl:
        wave, label = wave.cuda(), label.cuda()
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = encoder(wave).mean(-1)
            with torch.autocast("cuda", enabled=False):
                loss = nn.functional.cross_entropy(head(features.float()), label)
        loss.backward()
        opt.step()
    print(epoch, loss.item())
