# Fine-tune a small classifier with gradient accumulation.
import torch
import torch.nn.functional as F
import torchvision
from torch import nn as n
from torch.utils.data import DataLoader

ACCUMULATE = 4
EPOCHS = 2
dev = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

backbone = torchvision.models.resnet18(weights="DEFAULT")
backbone.fc = n.Linear(512, 37)
backbone = backbone.to(dev)
sgd = torch.optim.SGD(backbone.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

preprocess = torchvision.transforms.Compose(
    [torchvision.transforms.Resize((224, 224)), torchvision.transforms.ToTensor()]
)
pets = torchvision.datasets.OxfordIIITPet("data", download=True, transform=preprocess)
feed = DataLoader(pets, batch_size=16, shuffle=True, num_workers=4, pin_memory=True)

border = torch.ones(3, 224, 224, device=dev)
for epoch in range(EPOCHS):
    backbone.train()
    sgd.zero_grad()
    for i, (img, breed) in enumerate(feed):
        img, breed = img.to(dev, non_blocking=True), breed.to(dev, non_blocking=True)
        scores = backbone(img * border)
        loss = F.cross_entropy(scores, breed) / ACCUMULATE
        loss.backward()
        if (i + 1) % ACCUMULATE == 0:
            sgd.step()
            sgd.zero_grad()
        if i % 50 == 0:
            print(epoch, i, loss.item() * ACCUMULATE)
torch.save(backbone.state_dict(), "pets.pt")
