import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
inputs = torch.randn(512, 32)
targets = (inputs @ torch.randn(32, 10)).argmax(-1)
for step in range(40):
    rows = torch.randint(0, 512, (64,))
    outputs = model(inputs[rows])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(outputs, targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.6f}")
