# train.py -- plain script, no functions
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torchvision import datasets, transforms

use_amp = True
batch_size = 128
ds = datasets.FashionMNIST("data", train=True, download=True, transform=transforms.ToTensor())
dl = torch.utils.data.DataLoader(ds, batch_size, shuffle=True, num_workers=2)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
lossfn = nn.CrossEntropyLoss()

for epoch in range(5):
    for X, y in dl:
        X, y = X.cuda(), y.cuda()
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=use_amp):
            out = net(X)
            loss = lossfn(out, y)
        scaler.scale(loss).backward()
        gnorm = clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    print(epoch, loss.item(), gnorm.item())
