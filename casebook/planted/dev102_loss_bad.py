import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def make_data(n=4096, features=32):
    inputs = torch.randn(n, features)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


class WeightedLoss(nn.Module):
    """Cross entropy with a fixed weight per class."""

    def __init__(self, weights):
        super().__init__()
        self.scale = torch.linspace(0.5, 1.5, len(weights))

    def forward(self, logits, targets):
        each = nn.functional.cross_entropy(logits * self.scale, targets, reduction="none")
        return each.mean()


def build(features=32, width=128, classes=2):
    return nn.Sequential(
        nn.Linear(features, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, classes)
    )


def train_one_epoch(model, loader, loss_fn, optimizer, device):
    model.train()
    total = torch.zeros((), device=device)
    for inputs, targets in loader:
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


def evaluate(model, loader, device):
    model.eval()
    hits, seen = 0, 0
    with torch.no_grad():
        for inputs, targets in loader:
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            prediction = model(inputs).argmax(dim=-1)
            hits += (prediction == targets).sum().item()
            seen += targets.size(0)
    return hits / seen


def main():
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(make_data(), batch_size=64, shuffle=True, pin_memory=True)
    test_loader = DataLoader(make_data(1024), batch_size=256, pin_memory=True)
    model = build().to(device)
    loss_fn = WeightedLoss([1.0, 2.0]).to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(5):
        loss = train_one_epoch(model, train_loader, loss_fn, optimizer, device)
        print(f"{epoch}: loss {loss:.4f} accuracy {evaluate(model, test_loader, device):.3f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
