"""Forecasting with early stopping that brings the best weights back."""

import numpy as np
import torch
import torch.nn as nn


class EarlyStopping:
    def __init__(self, patience=7, delta=0.0):
        self.patience, self.delta = patience, delta
        self.counter = 0
        self.best_score = None
        self.best_state = {}
        self.early_stop = False

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None or score > self.best_score + self.delta:
            self.best_score = score
            self.best_state["model"] = model.state_dict()
            self.counter = 0
        else:
            self.counter += 1
            self.early_stop = self.counter >= self.patience

    def restore(self, model):
        model.load_state_dict(self.best_state["model"])


class Forecaster(nn.Module):
    def __init__(self, lookback, horizon):
        super().__init__()
        self.trend, self.season = nn.Linear(lookback, horizon), nn.Linear(lookback, horizon)
        self.avg = nn.AvgPool1d(25, 1, padding=12, count_include_pad=False)

    def forward(self, x):
        t = self.avg(x.unsqueeze(1)).squeeze(1)
        return self.trend(t) + self.season(x - t)


def windows(n, lookback, horizon):
    series = np.sin(np.arange(n + lookback + horizon) / 24).astype("float32")
    series += 0.1 * np.random.randn(len(series)).astype("float32")
    idx = np.arange(n)[:, None]
    return torch.from_numpy(series[idx + np.arange(lookback)]), torch.from_numpy(
        series[idx + lookback + np.arange(horizon)]
    )


def main():
    x, y = windows(2000, 96, 24)
    model = Forecaster(96, 24)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    stopper = EarlyStopping(patience=3)
    for epoch in range(100):
        model.train()
        for i in range(0, 1600, 32):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x[i : i + 32]), y[i : i + 32])
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x[1600:]), y[1600:]).item()
        stopper(val, model)
        if stopper.early_stop:
            break
    stopper.restore(model)


if __name__ == "__main__":
    main()
