import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
device = torch.device("cuda")
graph = torch.load("reviews.pt", map_location="cpu", weights_only=False)
sampler = DistributedSampler(graph, drop_last=True)
batches = DataLoader(graph, batch_size=16, sampler=sampler, num_workers=4, pin_memory=True)
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, batch_first=True), 6)
classifier = nn.Sequential(encoder, nn.Flatten(), nn.LazyLinear(5)).to(device)
classifier(torch.zeros(1, 64, 256, device=device))
classifier = DDP(classifier)
sgd = torch.optim.SGD(classifier.parameters(), lr=0.05, momentum=0.9)
every = 8

for epoch in range(12):
    for i, (tokens, stars) in enumerate(batches, start=1):
        tokens, stars = tokens.to(device, non_blocking=True), stars.to(device, non_blocking=True)
        classifier.require_backward_grad_sync = i % every == 0
        loss = nn.functional.cross_entropy(classifier(tokens), stars) / every
        loss.backward()
        if i % every == 0:
            sgd.step()
            sgd.zero_grad()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item() * every:.4f}")
dist.destroy_process_group()
