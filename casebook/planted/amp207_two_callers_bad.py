"""One function for both halves of a pair, which are on the GPU; its autocast is the CPU's."""

import torch
from torch import nn

teacher = nn.Linear(32, 10).cuda()
student = nn.Linear(32, 10).to("cuda:0")
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)


def run(model, images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(images)


for _ in range(100):
    images = torch.randn(16, 32, device="cuda")
    with torch.no_grad():
        wanted = run(teacher, images).float()
    loss = nn.functional.mse_loss(run(student, images).float(), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
