import argparse

import torch
import torchvision
from torch import nn, optim
from torch.utils.data import DataLoader


def build(num_classes):
    net = torchvision.models.mobilenet_v3_small(weights="DEFAULT")
    for p in net.parameters():
        p.requires_grad_(False)
    net.classifier[3] = nn.Linear(net.classifier[3].in_features, num_classes)
    return net


def run_epoch(net, head, loader, optimizer, device):
    loss_sum = hits = seen = 0
    for img, lab in loader:
        img, lab = img.to(device), lab.to(device)
        optimizer.zero_grad()
        with torch.no_grad():
            feats = net(img)
            logits = head(feats)
            loss = nn.functional.cross_entropy(logits, lab)
        optimizer.step()
        loss_sum += loss.item() * len(lab)
        hits += (logits.argmax(1) == lab).sum().item()
        seen += len(lab)
    return loss_sum / seen, hits / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("--epochs", type=int, default=5)
    args = ap.parse_args()
    device = torch.device("cuda")
    tf = torchvision.transforms.Compose([torchvision.transforms.Resize((224, 224)), torchvision.transforms.ToTensor()])
    ds = torchvision.datasets.ImageFolder(args.data, tf)
    loader = DataLoader(ds, 64, shuffle=True, num_workers=8, pin_memory=True)
    net = build(128).to(device).eval()
    head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, len(ds.classes))).to(device)
    optimizer = optim.Adam(head.parameters(), 1e-3)
    for ep in range(args.epochs):
        print(ep, *run_epoch(net, head, loader, optimizer, device))


if __name__ == "__main__":
    main()
