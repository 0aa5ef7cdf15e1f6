"""DataParallel under a bfloat16 region."""

import torch
from torch import nn
from torchvision.models import resnet50

model = resnet50(num_classes=1000).cuda()
model = nn.DataParallel(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9)


def train_epoch(loader):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
