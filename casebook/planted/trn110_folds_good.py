import torch
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, Subset

data = torch.load("windows.pt", map_location="cpu", weights_only=False)
device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Sequential(nn.Conv1d(8, 32, 5), nn.BatchNorm1d(32), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)).to(device)
net(torch.zeros(2, 8, 64, device=device))
start = {name: value.clone() for name, value in net.state_dict().items()}
ce = nn.CrossEntropyLoss()
scores = []

for fold, (fit_rows, held_out) in enumerate(KFold(5, shuffle=True).split(range(len(data)))):
    net.load_state_dict(start)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    fit_loader = DataLoader(Subset(data, fit_rows), batch_size=64, shuffle=True, pin_memory=True)
    val_loader = DataLoader(Subset(data, held_out), batch_size=256, pin_memory=True)
    for epoch in range(20):
        net.train()
        for series, label in fit_loader:
            series, label = series.to(device, non_blocking=True), label.to(device, non_blocking=True)
            loss = ce(net(series), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        right = 0
        with torch.no_grad():
            for series, label in val_loader:
                series, label = series.to(device, non_blocking=True), label.to(device, non_blocking=True)
                right += (net(series).argmax(1) == label).sum()
    scores.append(right.item() / len(held_out))
    print(f"fold {fold} accuracy {scores[-1]:.3f}")
