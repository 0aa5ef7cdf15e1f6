import torch

torch.manual_seed(0)
weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-4)
history = []
for step in range(40):
    features = torch.randn(2048 + 512 * step, 1024, device="cuda")
    loss = (features @ weight).square().mean()
    history.append(torch.zeros(512, 1024, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
