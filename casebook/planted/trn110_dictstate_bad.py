import copy

import torch


def cross_validate(make, folds, epochs):
    results = []
    for k, (tr, va) in enumerate(folds):
        net = make()
        opt = torch.optim.Adam(net.parameters())
        best = {"loss": float("inf")}
        for epoch in range(epochs):
            net.train()
            for x, y in tr:
                opt.zero_grad()
                torch.nn.functional.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                val = sum(torch.nn.functional.cross_entropy(net(x), y).item() for x, y in va) / len(va)
            if val < best["loss"]:
                best = {"loss": val, "epoch": epoch, "state": net.state_dict()}
        net.load_state_dict(best["state"])
        results.append(best["loss"])
    return results
