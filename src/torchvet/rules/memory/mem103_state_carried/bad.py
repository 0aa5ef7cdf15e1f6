import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 64, batch_first=True)
        self.readout = nn.Linear(64, 16)

    def forward(self, chunk, state):
        hidden, state = self.rnn(chunk, state)
        return self.readout(hidden), state


torch.manual_seed(0)
model = Forecaster().eval()
signal = torch.randn(32, 401, 16)
state = None
for step in range(40):
    chunk = signal[:, 10 * step : 10 * step + 11]
    forecast, state = model(chunk[:, :-1], state)
    loss = nn.functional.mse_loss(forecast, chunk[:, 1:])
    if step % 10 == 9:
        print(f"chunk {step + 1} loss {loss.item():.4f}")
