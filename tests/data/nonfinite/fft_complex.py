import torch
from torch import nn

torch.manual_seed(0)
w = nn.Parameter(torch.randn(16))
opt = torch.optim.SGD([w], 0.01)
for i in range(8):
    x = torch.randn(4, 16) * (i != 5)
    f = torch.fft.rfft(x * w)
    mag = f.real.square() + f.imag.square()
    loss = mag.log().mean()  # EXPECT log-of-zero
    opt.zero_grad()
    loss.backward()
    opt.step()
