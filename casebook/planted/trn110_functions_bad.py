import argparse
import copy

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split


class TabularNet(nn.Module):
    def __init__(self, n_features: int, n_classes: int, width: int = 128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, n_classes)

    def forward(self, features):
        hidden = self.layers(features)
        scores = self.head(hidden)
        return scores


def train(model, loader, criterion, optimizer, device):
    model.train()
    total = torch.zeros((), device=device)
    for features, target in loader:
        features, target = features.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(features)
        loss = criterion(output, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


def evaluate(model, loader, criterion, device):
    model.eval()
    total, hits = 0.0, 0
    with torch.no_grad():
        for features, target in loader:
            features, target = features.to(device), target.to(device)
            output = model(features)
            total += criterion(output, target).item()
            hits += (output.argmax(1) == target).sum().item()
    return total / len(loader), hits / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description="Classify rows of a table.")
    parser.add_argument("table")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = torch.load(args.table, map_location="cpu", weights_only=True)
    dataset = TensorDataset(table["features"], table["target"])
    train_set, test_set = random_split(dataset, [0.8, 0.2])
    train_loader = DataLoader(train_set, batch_size=256, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=256)

    model = TabularNet(table["features"].shape[1], int(table["target"].max()) + 1).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    best, best_weights = 0.0, None
    for epoch in range(args.epochs):
        train_loss = train(model, train_loader, criterion, optimizer, device)
        test_loss, accuracy = evaluate(model, test_loader, criterion, device)
        if accuracy > best:
            best = accuracy
            best_weights = model.state_dict().copy()
        scheduler.step()
        print(f"{epoch:3d} train {train_loss:.4f} test {test_loss:.4f} accuracy {accuracy:.3f}")
    torch.save(best_weights, "best.pt")


if __name__ == "__main__":
    main()
